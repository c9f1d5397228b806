package outbound

import (
	"encoding/base64"
	"net/textproto"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.yaml.in/yaml/v3"
)

// HTTPSettings are the settings of requests to one server.
type HTTPSettings struct {
	Signers      []*standardwebhooks.Webhook
	Headers      map[string]string
	AllowPrivate bool
	CAFile       string
}

// HTTPKeys are the configuration keys of HTTPSettings.
var HTTPKeys = []string{"secret", "headers", "allow_private", "ca_file"}

// HTTP reads the settings of requests to a URL, which needs allow_private without TLS.
func (r *Reader) HTTP(at Entry, u URL, fields map[string]Entry) HTTPSettings {
	s := HTTPSettings{AllowPrivate: r.Flag(fields["allow_private"]), CAFile: r.CAFile(fields["ca_file"]), Signers: r.Signers(fields["secret"]), Headers: r.Headers(fields["headers"])}
	if r.Err == nil && strings.HasSuffix(u.Scheme, "http") && !s.AllowPrivate {
		r.Fail(at.Value, at.Path, "%s:// is not encrypted and needs allow_private: true, for receivers in your own network; use %ss:// otherwise", u.Scheme, u.Scheme)
	}
	return s
}

// Signers returns the signers of one secret or a list; nil if absent.
func (r *Reader) Signers(field Entry) []*standardwebhooks.Webhook {
	if field.Value == nil {
		return nil
	}
	items := []*yaml.Node{field.Value}
	if field.Value.Kind == yaml.SequenceNode {
		items = field.Value.Content
	}
	if len(items) == 0 {
		r.Fail(field.Value, field.Path, "the list is empty; add a secret, or remove the key")
	}
	var signers []*standardwebhooks.Webhook
	for _, item := range items {
		secret := r.Expand(Entry{Path: field.Path, Key: field.Key, Value: item}, Verbatim)
		signer := readSecret(secret)
		if r.Err == nil && signer == nil {
			r.Fail(item, field.Path, "a secret of Standard Webhooks begins with whsec_, followed by 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)")
		}
		signers = append(signers, signer)
	}
	return signers
}

// Headers returns the headers that a request has in addition to its own.
func (r *Reader) Headers(field Entry) map[string]string {
	headers := map[string]string{}
	for _, header := range r.Entries(field.Value, field.Path) {
		name := canonicalHeader(header.Name)
		value := r.Expand(header, Verbatim)
		_, twice := headers[name]
		switch {
		case r.Err != nil:
		case name == "":
			r.Fail(header.Key, field.Path, "%q cannot be the name of a header", header.Name)
		case ownHeader(name):
			r.Fail(header.Key, header.Path, "the header %s is set by outboxweb; remove it", name)
		case twice:
			r.Fail(header.Key, header.Path, "the header %s appears twice", name)
		case !headerValue(value):
			r.Fail(header.Value, header.Path, "the value of a header must be one line of printable text")
		}
		headers[name] = value
	}
	return headers
}

// CAFile returns the path of a file with certificates; empty if absent.
func (r *Reader) CAFile(field Entry) string {
	if field.Value == nil {
		return ""
	}
	path := r.Text(field)
	if r.Err == nil && !filepath.IsAbs(path) {
		r.Fail(field.Value, field.Path, "the path of the certificates must be absolute, such as /etc/outboxweb/ca.pem")
	}
	return path
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
