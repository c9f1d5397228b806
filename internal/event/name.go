package event

import (
	"regexp"
	"slices"
)

// ParseName parses one of some names, such as a status; the empty name means any. field is the
// Refusal's.
func ParseName[T ~string](field, name string, names []T) (T, error) {
	if name == "" || slices.Contains(names, T(name)) {
		return T(name), nil
	}
	known := make([]string, len(names))
	for i, n := range names {
		known[i] = string(n)
	}
	return "", Invalid(field, "%s %q is unknown; use %s", field, name, OrList(known))
}

var givenName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// CheckName validates the name of a topic, a publisher or a source, which appears in pages, addresses
// and file names. field is topic, publisher or source.
func CheckName(field, name string) error {
	if !givenName.MatchString(name) {
		return Invalid(field, "%s %q must begin with a lower-case letter or a digit, followed by lower-case letters, digits, dots, dashes and underscores, at most 100 characters", field, name)
	}
	return nil
}
