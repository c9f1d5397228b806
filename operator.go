package outboxweb

import "github.com/outboxweb/outboxweb/internal/outbox"

// Operator is the person or program that a request is from. The name is shown and kept in the audit
// log.
type Operator struct {
	Name string
	Role Role
}

// Role is what an operator may do. Each includes the ones before it.
type Role string

// The roles.
const (
	RoleViewer   Role = Role(outbox.RoleViewer)   // may read
	RoleOperator Role = Role(outbox.RoleOperator) // may also append, requeue, pause and repair
	RoleAdmin    Role = Role(outbox.RoleAdmin)    // may also skip events, move publishers, reveal hidden values and revoke API tokens
)
