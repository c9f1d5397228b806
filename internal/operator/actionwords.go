package operator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Withheld says in one sentence which of the actions the identity may not perform, and the role
// each requires. It is empty if the identity may perform them all.
func (i Identity) Withheld(actions ...Action) string {
	var needs []string
	for _, role := range Roles {
		var words []string
		for _, a := range actions {
			if a.Role() == role && !i.Role.Includes(role) && !slices.Contains(words, event.Lowered(a.Words())) {
				words = append(words, event.Lowered(a.Words()))
			}
		}
		if len(words) > 0 {
			needs = append(needs, event.Joined(words, " and ")+needOf(len(words))+string(role))
		}
	}
	if len(needs) == 0 {
		return ""
	}
	return event.Sentence(strings.Join(needs, ", ") + "; you are " + i.whoAndRole())
}

// groupsNamed is how many groups a sentence names.
const groupsNamed = 20

// Lacks says which role an address requires, who the user is signed in as, and who can change that.
func (i Identity) Lacks(least Role) string {
	switch i.Auth {
	case AuthToken:
		return fmt.Sprintf("this needs the role %s; you are %s. Ask an administrator of this server for a token with that role", least, i.whoAndRole())
	case AuthHost: // which has no groups
		return fmt.Sprintf("this needs the role %s; you are %s. Ask an administrator of this service to give you that role", least, i.whoAndRole())
	}
	in := ", in none of the groups that a rule names"
	if n := min(len(i.Groups), groupsNamed); n > 0 {
		in = ", in " + strings.Join(i.Groups[:n], ", ")
		if more := len(i.Groups) - n; more > 0 {
			in += " and " + event.Count(int64(more), "more group", "more groups")
		}
	}
	hints := ""
	for _, hint := range i.Hints {
		hints += "; " + hint
	}
	return fmt.Sprintf("this needs the role %s; you are %s%s%s. Ask an administrator of this server to give you or one of your groups that role", least, i.whoAndRole(), in, hints)
}

// needOf returns the verb between n actions and the role they require.
func needOf(n int) string {
	if n > 1 {
		return " need the role "
	}
	return " needs the role "
}

// whoAndRole is "ana@example.org, a viewer", or only the role if the name is unknown.
func (i Identity) whoAndRole() string {
	role := "without a role"
	switch {
	case i.Role == RoleNone:
	case strings.ContainsRune("aeiou", rune(i.Role[0])):
		role = "an " + string(i.Role)
	default:
		role = "a " + string(i.Role)
	}
	if i.Name == "" {
		return role
	}
	return i.Name + ", " + role
}
