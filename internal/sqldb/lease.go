package sqldb

import "fmt"

// Leases are the leases on the rows of a table. lease_owner has a row until lease_expires_at, in
// microseconds, and what it changes it changes under lease_epoch, the fencing number: each
// owner has a higher one than the owner before, and a holder with an outdated one changes nothing. A row
// without an owner is free, and so is one whose lease has expired.
type Leases struct {
	Table string
	Key   string // the columns that tell rows apart, in the order in which rows are locked
	// Due is true of rows with a due_at that an expired lease moves forward, and whose owner is kept
	// until the next has seen to what it left.
	Due bool
}

// Take leases the row that a condition selects to an owner, or extends its lease, and returns the
// epoch. It is 0 while another owner has the row. The condition's parameters begin at $5. A lease that
// ends in ten times its length is one of a clock that was set back.
func (l Leases) Take(t *Tx, owner string, now, length int64, condition string, args ...any) (epoch int64, err error) {
	_, err = t.One([]any{&epoch}, `
update `+l.Table+`
set lease_epoch = case when lease_owner = $1 then lease_epoch else lease_epoch + 1 end,
  lease_owner = $1, lease_expires_at = $2
where (lease_owner = $1 or lease_expires_at <= $3 or lease_expires_at > $4)
  and `+condition+`
returning lease_epoch`, append([]any{owner, now + length, now, now + 10*length}, args...)...)
	return epoch, err
}

// Release frees the row that a condition selects, if an owner has it under an epoch, so that another
// takes it at once. The condition's parameters begin at $3.
func (l Leases) Release(t *Tx, owner string, epoch int64, condition string, args ...any) error {
	_, err := t.Exec(`
update `+l.Table+`
set lease_owner = '', lease_expires_at = 0
where lease_owner = $1
  and lease_epoch = $2
  and `+condition, append([]any{owner, epoch}, args...)...)
	return err
}

// End expires the leases of an owner that is known to be gone, and those of the runs that it worked
// on; all leases if it is empty. Should it still run, the next epoch fences it off.
func (l Leases) End(t *Tx, owner string, now int64) error {
	_, err := t.Exec(l.change(t, `lease_expires_at = $1`, `lease_owner <> ''
    and ($2 = '' or lease_owner = $2 or substr(lease_owner, 1, 4) = 'run ' and substr(lease_owner, length(lease_owner) - length($2) + 1) = $2)
    and lease_expires_at > $1`), now, owner)
	return err
}

// Void ends all leases and raises their epochs to now, which no epoch that was given out reaches. It
// spares those above at, which another process has raised for the same reason.
func (l Leases) Void(t *Tx, now, at int64) error {
	set := `lease_epoch = $1, lease_owner = '', lease_expires_at = 0`
	if l.Due {
		set = `lease_epoch = $1, lease_expires_at = least(lease_expires_at, cast($1 as bigint))`
	}
	_, err := t.Exec(l.change(t, set, `lease_epoch < $2`), now, at)
	return err
}

// change is a statement that changes the leases of which a condition holds, in the order of the key.
func (l Leases) change(t *Tx, set, condition string) string {
	if l.Due {
		set += `, due_at = case when lease_owner = '' or due_at is null then due_at else cast($1 as bigint) end`
	}
	return fmt.Sprintf(`
update %[1]s
set %[2]s
where (%[3]s) in (
  select %[3]s
  from %[1]s
  where %[4]s
  order by %[3]s%[5]s)`, l.Table, set, l.Key, condition, t.ForUpdate)
}
