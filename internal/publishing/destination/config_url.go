package destination

import (
	"encoding/base64"
	"net"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// address is a parsed destination URL. It may have several servers, which net/url does not parse.
type address struct {
	kind      kind
	whole     string // with variables replaced, as are the parts
	scheme    string
	user      string // name and password as written, escaped
	hasUser   bool
	authority string // host and port, or several separated by commas
	path      string // unescaped
	query     string // without the ?
	shownPath string // as written in the configuration, with … for variables
}

// destination parses the URL of a publisher.
func (r *reader) destination(at entry) address {
	text := r.text(at)
	u := address{whole: r.expand(at, putInURL(text))}
	if r.err != nil {
		return u
	}
	scheme, rest, found := strings.Cut(u.whole, ":")
	u.scheme = strings.ToLower(scheme)
	u.kind = kind(u.scheme)
	if u.scheme == "http" {
		u.kind = kindWebhook
	}
	if _, known := u.kind.info(); !found || !known {
		if found && schemeLike(scheme) && strings.HasPrefix(text, scheme) { // otherwise it may be a secret
			r.fail(at.value, at.path, "unknown scheme %s:; use %s", shorten(scheme), knownSchemes())
		} else {
			r.fail(at.value, at.path, "a URL begins with its scheme; use %s", knownSchemes())
		}
		return u
	}
	if strings.Contains(rest, "#") || strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		r.fail(at.value, at.path, "the URL must not contain #, spaces or control characters; write a space as %%20")
		return u
	}
	rest, u.query, _ = strings.Cut(rest, "?")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		slash := strings.Index(after+"/", "/")
		u.authority, rest = after[:slash], after[slash:]
	}
	if i := strings.LastIndex(u.authority, "@"); i >= 0 {
		u.user, u.authority, u.hasUser = u.authority[:i], u.authority[i+1:], true
	}
	var err error
	if u.path, err = url.PathUnescape(rest); err != nil {
		r.fail(at.value, at.path, "a %% in the path of a URL must be followed by two hexadecimal digits")
	}
	u.shownPath = shownPath(text, u.path)
	return u
}

var schemeLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`).MatchString

// putInURL inserts values of variables into a URL. Values in the user info and after the ? are
// escaped, so that they may contain any character.
func putInURL(text string) func(at int, value string) string {
	query := strings.Index(text+"?", "?")
	user := 0
	if start := strings.Index(text, "://"); start >= 0 {
		end := start + len("://")
		end += strings.IndexAny(text[end:]+"/", "/?#")
		user = strings.LastIndex(text[:end], "@")
	}
	return func(at int, value string) string {
		if at < user || at > query {
			return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
		}
		return value
	}
}

// shownPath is the path of a URL as written in the configuration: the value of a variable there may
// be a secret.
func shownPath(text, path string) string {
	_, rest, absolute := strings.Cut(text, "://")
	if !absolute || strings.HasPrefix(text, "$") {
		if strings.Trim(path, "/") == "" {
			return path
		}
		return "/…"
	}
	rest, _, _ = strings.Cut(rest, "?")
	slash := strings.Index(rest+"/", "/")
	return variable.ReplaceAllString(rest[slash:], "…")
}

func (r *reader) logURL(at entry, u address) string {
	if strings.TrimSuffix(u.whole[len("log:"):], "//") != "" {
		r.fail(at.value, at.path, "log: takes nothing after the colon; it writes to the log of this process")
	}
	return "log:"
}

// webhookDestination checks the URL of a webhook and returns it without secrets.
func (r *reader) webhookDestination(at entry, u address) string {
	parsed, err := url.Parse(u.whole)
	if r.err == nil && (err != nil || parsed.Hostname() == "" || !portInRange(parsed.Port())) {
		r.fail(at.value, at.path, "is not a URL such as https://host/path; characters with a meaning of their own must be escaped in a password")
	}
	shown := u.scheme + "://" + u.authority + u.shownPath
	if u.query != "" {
		shown += "?…"
	}
	return shown
}

func portInRange(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// natsSubject is a subject that can be published to: tokens with dots, without wildcards.
var natsSubject = regexp.MustCompile(`^[^\s.*>@/]+(\.[^\s.*>@/]+)*$`)

func (r *reader) nats(at entry, u address, fields map[string]entry, s *busSettings) string {
	r.bus(at, u, "4222", s, "tls")
	s.caFile = r.caFile(fields["ca_file"])
	if r.err == nil && (!natsSubject.MatchString(s.name) || len(s.name) > 250) {
		r.fail(at.value, at.path, "the subject must follow the host, such as nats://host:4222/outboxweb.scenes; it is one subject, without * and >")
	}
	return "nats://" + strings.Join(s.servers, ",") + "/" + s.name
}

var kafkaTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

var saslMechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

func (r *reader) kafka(at entry, u address, fields map[string]entry, s *busSettings) string {
	r.bus(at, u, "9092", s, "tls", "sasl")
	s.caFile = r.caFile(fields["ca_file"])
	switch {
	case r.err != nil:
	case !kafkaTopic.MatchString(s.name) || s.name == "." || s.name == "..":
		r.fail(at.value, at.path, "the topic must follow the brokers, such as kafka://host:9092/scenes; it has letters, digits, dots, dashes and underscores")
	case s.sasl != "" && !slices.Contains(saslMechanisms, s.sasl):
		r.fail(at.value, at.path, "sasl must be %s", strings.Join(saslMechanisms, " or "))
	case s.sasl != "" && !s.hasPassword:
		r.fail(at.value, at.path, "sasl needs a name and a password: kafka://user:password@host:9092/topic?sasl=%s", s.sasl)
	case s.sasl == "" && u.hasUser:
		r.fail(at.value, at.path, "a name and a password need ?sasl=, one of %s", strings.Join(saslMechanisms, ", "))
	}
	return "kafka://" + strings.Join(s.servers, ",") + "/" + s.name
}

// bus parses what NATS and Kafka have in common.
func (r *reader) bus(at entry, u address, port string, s *busSettings, known ...string) {
	if strings.Contains(u.user, "@") {
		r.fail(at.value, at.path, "the name and password appear once, before the first server; write an @ in them as %%40")
		return
	}
	if s.servers = servers(u.authority, port); s.servers == nil {
		r.fail(at.value, at.path, "the servers must follow %s:// as HOST:PORT, several with commas; characters with a meaning of their own must be escaped in a password", u.scheme)
		return
	}
	s.name = strings.TrimPrefix(u.path, "/")
	name, password, hasPassword := strings.Cut(u.user, ":")
	var errs [2]error
	s.user, errs[0] = url.PathUnescape(name)
	s.password, errs[1] = url.PathUnescape(password)
	s.hasPassword = hasPassword
	query, err := url.ParseQuery(u.query)
	if err != nil || errs[0] != nil || errs[1] != nil {
		r.fail(at.value, at.path, "a %% in a URL must be followed by two hexadecimal digits")
	}
	for name, values := range query {
		if !slices.Contains(known, name) || len(values) > 1 {
			r.fail(at.value, at.path, "after the ? only %s may appear, once each", strings.Join(known, " or "))
		}
	}
	if query.Has("tls") {
		s.tls = query.Get("tls") == "true"
		if !s.tls && query.Get("tls") != "false" {
			r.fail(at.value, at.path, "tls must be true or false")
		}
	}
	s.sasl = query.Get("sasl")
}

// servers returns the addresses in a comma-separated list; one without a port gets that of the one
// before, or the given one. nil if the list is invalid.
func servers(list, port string) (all []string) {
	for _, server := range strings.Split(list, ",") {
		parsed, err := url.Parse("x://" + server)
		if err != nil || parsed.Hostname() == "" || !portInRange(parsed.Port()) || parsed.Path != "" {
			return nil
		}
		if parsed.Port() != "" {
			port = parsed.Port()
		}
		all = append(all, net.JoinHostPort(parsed.Hostname(), port))
	}
	return all
}

// readSecret returns the signer of a secret; nil if the secret is invalid.
func readSecret(secret string) *standardwebhooks.Webhook {
	encoded, found := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(key) < 24 || len(key) > 64 {
		return nil
	}
	signer, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return nil
	}
	return signer
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// canonicalHeader is a header's canonical name; empty if invalid.
func canonicalHeader(name string) string {
	if !headerName.MatchString(name) {
		return ""
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// ownHeader reports whether the publisher sets the header itself.
func ownHeader(name string) bool {
	return strings.HasPrefix(name, "Webhook-") || slices.Contains([]string{
		"Content-Type", "Content-Length", "Content-Encoding", "Host", "User-Agent", "Accept-Encoding",
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
	}, name)
}

func headerValue(value string) bool {
	return !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}
