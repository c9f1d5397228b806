package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/alecthomas/kong"

	"outboxweb/internal/outbox"
)

// settingsOf lists the flags of the command that runs with their values,
// whether given or not, without secrets.
func settingsOf(parsed *kong.Context) []outbox.Setting {
	var all []outbox.Setting
	for _, flag := range parsed.Flags() {
		if flag.Name == "help" || flag.Hidden {
			continue
		}
		all = append(all, outbox.Setting{Name: flag.Name, Value: shownValue(flag.Name, parsed.FlagValue(flag)), Given: flagGiven(parsed, flag)})
	}
	return all
}

// shownValue writes a flag's value without what only its owner may know.
func shownValue(name string, value any) string {
	for _, secret := range []string{"secret", "token", "password", "key"} {
		if strings.Contains(name, secret) && name != "auth-secret-header" && fmt.Sprint(value) != "" {
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

// withoutPassword masks the password of a URL, wherever it stands.
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
