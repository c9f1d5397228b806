package destination

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbound"
)

func (r *reader) log(at outbound.Entry, u outbound.URL, _ map[string]outbound.Entry, _ *settings) string {
	return r.bare(at, u, "the log")
}

// bare parses the URL of a kind of destination that is within this process.
func (r *reader) bare(at outbound.Entry, u outbound.URL, writes string) string {
	whole := u.Scheme + ":"
	if strings.TrimSuffix(u.Whole[len(whole):], "//") != "" {
		r.Fail(at.Value, at.Path, "%s takes nothing after the colon; it writes to %s of this process", whole, writes)
	}
	return whole
}

// natsSubject is a subject that can be published to: tokens with dots, without wildcards.
var natsSubject = regexp.MustCompile(`^[^\s.*>@/]+(\.[^\s.*>@/]+)*$`)

func (r *reader) nats(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, all *settings) string {
	s := &all.bus
	r.bus(at, u, "4222", s, "tls")
	s.caFile = r.CAFile(fields["ca_file"])
	if r.Err == nil && (!natsSubject.MatchString(s.name) || len(s.name) > 250) {
		r.Fail(at.Value, at.Path, "the subject must follow the host, such as nats://host:4222/outboxweb.scenes; it is one subject, without * and >")
	}
	return "nats://" + strings.Join(s.servers, ",") + "/" + s.name
}

var kafkaTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

var saslMechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

func (r *reader) kafka(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, all *settings) string {
	s := &all.bus
	r.bus(at, u, "9092", s, "tls", "sasl")
	s.caFile = r.CAFile(fields["ca_file"])
	switch {
	case r.Err != nil:
	case !kafkaTopic.MatchString(s.name) || s.name == "." || s.name == "..":
		r.Fail(at.Value, at.Path, "the topic must follow the brokers, such as kafka://host:9092/scenes; it has letters, digits, dots, dashes and underscores")
	case s.sasl != "" && !slices.Contains(saslMechanisms, s.sasl):
		r.Fail(at.Value, at.Path, "sasl must be %s", strings.Join(saslMechanisms, " or "))
	case s.sasl != "" && !s.hasPassword:
		r.Fail(at.Value, at.Path, "sasl needs a name and a password: kafka://user:password@host:9092/topic?sasl=%s", s.sasl)
	case s.sasl == "" && u.HasUser:
		r.Fail(at.Value, at.Path, "a name and a password need ?sasl=, one of %s", strings.Join(saslMechanisms, ", "))
	}
	return "kafka://" + strings.Join(s.servers, ",") + "/" + s.name
}

// bus parses what NATS and Kafka have in common.
func (r *reader) bus(at outbound.Entry, u outbound.URL, port string, s *busSettings, known ...string) {
	if strings.Contains(u.User, "@") {
		r.Fail(at.Value, at.Path, "the name and password appear once, before the first server; write an @ in them as %%40")
		return
	}
	if s.servers = servers(u.Authority, port); s.servers == nil {
		r.Fail(at.Value, at.Path, "the servers must follow %s:// as HOST:PORT, several with commas; characters with a meaning of their own must be escaped in a password", u.Scheme)
		return
	}
	s.name = strings.TrimPrefix(u.Path, "/")
	name, password, hasPassword := strings.Cut(u.User, ":")
	var errs [2]error
	s.user, errs[0] = url.PathUnescape(name)
	s.password, errs[1] = url.PathUnescape(password)
	s.hasPassword = hasPassword
	query, err := url.ParseQuery(u.Query)
	if err != nil || errs[0] != nil || errs[1] != nil {
		r.Fail(at.Value, at.Path, "a %% in a URL must be followed by two hexadecimal digits")
	}
	for name, values := range query {
		if !slices.Contains(known, name) || len(values) > 1 {
			r.Fail(at.Value, at.Path, "after the ? only %s may appear, once each", strings.Join(known, " or "))
		}
	}
	if query.Has("tls") {
		s.tls = query.Get("tls") == "true"
		if !s.tls && query.Get("tls") != "false" {
			r.Fail(at.Value, at.Path, "tls must be true or false")
		}
	}
	s.sasl = query.Get("sasl")
}

// servers returns the addresses in a comma-separated list; one without a port gets that of the one
// before, or the given one. nil if the list is invalid.
func servers(list, port string) (all []string) {
	for _, server := range strings.Split(list, ",") {
		parsed, err := url.Parse("x://" + server)
		if err != nil || parsed.Hostname() == "" || !outbound.PortInRange(parsed.Port()) || parsed.Path != "" {
			return nil
		}
		if parsed.Port() != "" {
			port = parsed.Port()
		}
		all = append(all, net.JoinHostPort(parsed.Hostname(), port))
	}
	return all
}
