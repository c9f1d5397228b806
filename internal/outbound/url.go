package outbound

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// URL is a parsed URL of the configuration. It may have several servers, which net/url does not
// parse.
type URL struct {
	Whole     string // with variables replaced, as are the parts
	Scheme    string
	User      string // name and password as written, escaped
	HasUser   bool
	Authority string // host and port, or several separated by commas
	Path      string // unescaped
	Query     string // without the ?
	ShownPath string // as written in the configuration, with … for variables
}

// URL parses a URL whose scheme is known; schemes names those for a sentence.
func (r *Reader) URL(at Entry, known func(scheme string) bool, schemes string) URL {
	text := r.Text(at)
	u := URL{Whole: r.Expand(at, putInURL(text))}
	if r.Err != nil {
		return u
	}
	scheme, rest, found := strings.Cut(u.Whole, ":")
	u.Scheme = strings.ToLower(scheme)
	if !found || !known(u.Scheme) {
		if found && schemeLike(scheme) && strings.HasPrefix(text, scheme) { // otherwise it may be a secret
			r.Fail(at.Value, at.Path, "unknown scheme %s:; use %s", Shorten(scheme), schemes)
		} else {
			r.Fail(at.Value, at.Path, "a URL begins with its scheme; use %s", schemes)
		}
		return u
	}
	if strings.Contains(rest, "#") || strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		r.Fail(at.Value, at.Path, "the URL must not contain #, spaces or control characters; write a space as %%20")
		return u
	}
	rest, u.Query, _ = strings.Cut(rest, "?")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		slash := strings.Index(after+"/", "/")
		u.Authority, rest = after[:slash], after[slash:]
	}
	if i := strings.LastIndex(u.Authority, "@"); i >= 0 {
		u.User, u.Authority, u.HasUser = u.Authority[:i], u.Authority[i+1:], true
	}
	var err error
	if u.Path, err = url.PathUnescape(rest); err != nil {
		r.Fail(at.Value, at.Path, "a %% in the path of a URL must be followed by two hexadecimal digits")
	}
	u.ShownPath = shownPath(text, u.Path)
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

// Shown checks a URL with one host and returns it without secrets.
func (r *Reader) Shown(at Entry, u URL) string {
	parsed, err := url.Parse(u.Whole)
	if r.Err == nil && (err != nil || parsed.Hostname() == "" || !PortInRange(parsed.Port())) {
		r.Fail(at.Value, at.Path, "is not a URL such as https://host/path; characters with a meaning of their own must be escaped in a password")
	}
	shown := u.Scheme + "://" + u.Authority + u.ShownPath
	if u.Query != "" {
		shown += "?…"
	}
	return shown
}

// PortInRange reports whether a port is absent or valid.
func PortInRange(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}
