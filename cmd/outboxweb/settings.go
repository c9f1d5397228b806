package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// shownValue formats a flag's value without secrets.
func shownValue(name string, value any) string {
	for _, secret := range []string{"secret", "token", "password", "key"} {
		if strings.Contains(name, secret) && name != "auth-secret-header" && !strings.HasPrefix(name, "redact-") && fmt.Sprint(value) != "" {
			return "•••"
		}
	}
	switch v := value.(type) {
	case []string:
		shown := make([]string, len(v))
		for i, s := range v {
			shown[i] = withoutPassword(s)
		}
		return strings.Join(shown, ", ")
	case *bool:
		if v == nil {
			return ""
		}
		return fmt.Sprint(*v)
	}
	return withoutPassword(fmt.Sprint(value))
}

// withoutPassword masks passwords in URLs anywhere in a text.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil && strings.Contains(text, "://") {
		return "•••"
	}
	if err != nil || u.Scheme == "" {
		return text
	}
	if _, secret := u.User.Password(); secret {
		u.User = url.UserPassword(u.User.Username(), "xxxxx")
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") || strings.Contains(strings.ToLower(name), "secret") {
			query.Set(name, "xxxxx")
			u.RawQuery = query.Encode()
		}
	}
	return u.String()
}

// flagsFromAnywhere returns the flags that let a command, started in any directory, use the
// databases and projections that c names, without passwords. Values from the configuration file are
// omitted, except relative paths.
func (c *Common) flagsFromAnywhere() []string {
	var flags []string
	if c.Config != "" {
		flags = append(flags, "--config="+absolutePath(string(c.Config)))
	}
	for _, d := range []struct{ name, url string }{{"journal-db", c.JournalDB}, {"projections-db", c.ProjectionsDB}} {
		path, inFile := strings.CutPrefix(d.url, "sqlite:")
		switch {
		case c.sources[d.name] == fromFile && (!inFile || filepath.IsAbs(path)):
		case inFile:
			flags = append(flags, "--"+d.name+"=sqlite:"+absolutePath(path))
		default:
			flags = append(flags, "--"+d.name+"="+sqldb.WithoutSecrets(d.url))
		}
	}
	relative := func(of string) bool { return !strings.HasPrefix(of, "builtin:") && !filepath.IsAbs(of) }
	if c.sources["projections"] == fromShell || slices.ContainsFunc(c.ProjectionFiles, relative) {
		for _, of := range c.ProjectionFiles {
			if relative(of) {
				of = absolutePath(of)
			}
			flags = append(flags, "--projections="+of)
		}
	}
	return flags
}

func absolutePath(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}
