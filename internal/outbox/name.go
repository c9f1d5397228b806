package outbox

import "slices"

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
