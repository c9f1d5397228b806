// Package operator holds who acts and how: identities and roles, the registry of actions, commands, what
// confirms them, and their audit records.
package operator
