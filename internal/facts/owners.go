package facts

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Take puts the operator on a finding, in the place of an earlier owner and with the reason as the note, or gives it
// back. It is event.ErrNotFound if nothing of the kind and subject is wrong, and event.ErrConflict to give back what
// nobody is on.
func (e *Reader) Take(ctx context.Context, o operator.Command, asked campaign.TakeRequest) (finding.Taken, error) {
	all, err := e.Findings(ctx)
	if err != nil {
		return finding.Taken{}, err
	}
	name := strings.TrimSpace(string(asked.Kind) + " " + asked.Subject)
	owner := &finding.Owner{Kind: asked.Kind, Subject: asked.Subject, By: o.By.Name, Note: o.Reason}
	a := &store.Change{Command: o, Action: operator.ActionTake, Before: asked, Asked: asked}
	return store.Perform(ctx, e.Store, a, func(t *store.Tx, now int64) (taken finding.Taken, err error) {
		taken = finding.Taken{Kind: asked.Kind, Subject: asked.Subject}
		if err := e.Store.RequireReason(o, 0); err != nil {
			return taken, err
		}
		if _, err := t.One([]any{&taken.From}, `select owner from finding_owners where kind = $1 and subject = $2 and owner <> $3`, string(asked.Kind), asked.Subject, o.By.Name); err != nil {
			return taken, err
		}
		n, err := t.Exec(`delete from finding_owners where kind = $1 and subject = $2`, string(asked.Kind), asked.Subject)
		switch {
		case err != nil:
		case asked.GiveBack && n == 0:
			err = event.Conflict("nobody is on %s", name)
		case asked.GiveBack:
		case !slices.ContainsFunc(all, owner.Of):
			err = event.NotFound("nothing that is wrong now is named %s", name)
		default:
			owner.Since, taken.Owner = sqldb.At(now), owner
			_, err = t.Exec(`insert into finding_owners (kind, subject, owner, note, taken_at) values ($1, $2, $3, $4, $5)`, string(owner.Kind), owner.Subject, owner.By, owner.Note, now)
		}
		a.After = taken
		return taken, err
	})
}

// owners are all that were taken, those of a whole kind before those of its subjects.
func (e *Reader) owners(ctx context.Context) ([]finding.Owner, error) {
	return store.Reading(ctx, e.Store, "read who is on what", func(t *store.Tx) ([]finding.Owner, error) {
		return sqldb.All(t, func(row sqldb.Row) (o finding.Owner, err error) {
			err = row.Scan(&o.Kind, &o.Subject, &o.By, &o.Note, sqldb.ScanTime(&o.Since))
			return o, err
		}, `select kind, subject, owner, note, taken_at from finding_owners order by kind, subject`)
	})
}

// Owned is a finding with who is on it.
func (f Facts) Owned(one finding.Finding) finding.Finding {
	for i := range f.Owners {
		if o := &f.Owners[i]; o.Of(one) && f.Summary.AsOf.Sub(o.Since) < finding.OwnedFor {
			one.Owner = o
		}
	}
	return one
}

// goneAfter is how long a finding must be gone to be over: a failed row is not failed while it is tried again.
const goneAfter = time.Minute

// ForgetOwners forgets who is on what is over.
func (e *Reader) ForgetOwners(ctx context.Context) (bool, error) {
	owners, err := e.owners(ctx)
	if err != nil || len(owners) == 0 {
		return false, err
	}
	all, err := e.Findings(ctx)
	if err != nil {
		return false, err
	}
	now, gone, failed := sqldb.At(e.Store.Now()), map[finding.Owner]time.Time{}, []error(nil)
	for _, o := range owners {
		first, known := e.gone[o]
		switch stale := now.Sub(o.Since) >= finding.OwnedFor; {
		case !stale && slices.ContainsFunc(all, o.Of):
		case stale || known && now.Sub(first) >= goneAfter:
			failed = append(failed, e.Store.Journal().Write(ctx, func(t *store.Tx) error {
				_, err := t.Exec(`delete from finding_owners where kind = $1 and subject = $2 and taken_at = $3`, string(o.Kind), o.Subject, o.Since.UnixMicro())
				return err
			}))
		case known:
			gone[o] = first
		default:
			gone[o] = now
		}
	}
	e.gone = gone
	return false, errors.Join(failed...)
}
