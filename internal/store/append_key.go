package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// AppendKey makes an append idempotent: for AppendKeyLife, the same key with the same caller
// and request returns the first result.
type AppendKey struct {
	By      operator.Identity
	Key     string
	Request string // hash of the request
}

// AppendKeyLife is how long an append key is kept.
const AppendKeyLife = 24 * time.Hour

// seqRun is a run of seqs that an append resulted in: new events or existing ones.
type seqRun struct {
	First   int64 `json:"first"`
	Last    int64 `json:"last"`
	Existed bool  `json:"existed,omitempty"`
}

// lockKeys serializes appends under one key where transactions are not serialized anyway.
func (a *appending) lockKeys(calls []*appendCall) error {
	var locks []string
	for _, call := range calls {
		if call.key != nil {
			locks = append(locks, strings.Join([]string{"append", string(call.key.By.Auth), call.key.By.Name, call.key.Key}, " "))
		}
	}
	slices.Sort(locks) // sorted, to avoid deadlocks
	for _, lock := range locks {
		if err := a.t.lockKey(lock); err != nil {
			return fmt.Errorf("wait for the key of an append: %w", err)
		}
	}
	return nil
}

const (
	selectAppendKey = `
select request_hash, campaign_id, outcome
from append_keys
where auth = $1
  and actor = $2
  and idempotency_key = $3
  and at > $4`

	upsertAppendKey = `
insert into append_keys (auth, actor, idempotency_key, request_hash, campaign_id, outcome, at)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (auth, actor, idempotency_key) do update
set request_hash = excluded.request_hash, campaign_id = excluded.campaign_id, outcome = excluded.outcome, at = excluded.at`

	selectSeqRun = `
select seq, position, event_id
from events
where campaign_id = $1
  and seq between $2 and $3
order by seq`
)

// repeated answers a call whose key was used before and reports whether it was.
func (a *appending) repeated(call *appendCall) (bool, error) {
	if err := a.flush(); err != nil { // an earlier call in the group may have the same key
		return false, err
	}
	k := call.key
	var request, campaign string
	var runs []seqRun
	found, err := a.t.One([]any{&request, &campaign, sqldb.ScanJSON(&runs)}, selectAppendKey,
		string(k.By.Auth), k.By.Name, k.Key, a.now-AppendKeyLife.Microseconds())
	switch {
	case err != nil || !found:
		return false, err
	case request != k.Request:
		return false, event.Invalid("Idempotency-Key", "this Idempotency-Key was used for another append, to campaign %q; use a new key for a new append", campaign)
	}
	call.result = nil
	for _, run := range runs {
		err := a.t.Each(func(row sqldb.Row) error {
			one := Appended{CampaignID: campaign, Existed: run.Existed}
			call.result = append(call.result, one)
			last := &call.result[len(call.result)-1]
			return row.Scan(&last.Seq, &last.Position, &last.EventID)
		}, selectSeqRun, campaign, run.First, run.Last)
		if err != nil {
			return false, err
		}
	}
	call.repeated = true
	return true, nil
}

// recordKey queues the record of a keyed call's result.
func (a *appending) recordKey(call *appendCall) {
	var runs []seqRun
	for _, one := range call.result {
		if last := len(runs) - 1; last >= 0 && runs[last].Last+1 == one.Seq && runs[last].Existed == one.Existed {
			runs[last].Last++
			continue
		}
		runs = append(runs, seqRun{First: one.Seq, Last: one.Seq, Existed: one.Existed})
	}
	k := call.key
	a.queue.Exec(nil, upsertAppendKey, string(k.By.Auth), k.By.Name, k.Key, k.Request, call.Events[0].CampaignID, sqldb.JSON(runs), a.now)
}
