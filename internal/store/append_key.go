package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
)

// AppendKey lets an append be asked for again without being done again: for
// AppendKeyLife the same key, of the same caller, with the same request is
// answered as the first time.
type AppendKey struct {
	By      outbox.Identity
	Key     string
	Request string // a hash of what was asked for
}

// AppendKeyLife is how long the key of an append is kept.
const AppendKeyLife = 24 * time.Hour

// lock orders keys, and is what appends of several processes wait for.
func (k *AppendKey) lock() string {
	return strings.Join([]string{"append", string(k.By.Auth), k.By.Name, k.Key}, " ")
}

// seqRun is a stretch of seqs that an append came to: new events, or such that
// were there already.
type seqRun struct {
	First   int64 `json:"first"`
	Last    int64 `json:"last"`
	Existed bool  `json:"existed,omitempty"`
}

// lockKeys lets appends under one key happen one after the other, where
// transactions do not do so anyway.
func (a *appending) lockKeys(calls []*appendCall) error {
	var locks []string
	for _, call := range calls {
		if call.key != nil {
			locks = append(locks, call.key.lock())
		}
	}
	slices.Sort(locks) // in one order, so that nobody waits in a circle
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

// repeated answers a call whose key was used before, and reports whether it was.
func (a *appending) repeated(call *appendCall) (bool, error) {
	if err := a.flush(); err != nil { // a call before it in the group may have the key
		return false, err
	}
	k := call.key
	var request, campaign, outcome string
	found, err := a.t.One([]any{&request, &campaign, &outcome}, selectAppendKey,
		string(k.By.Auth), k.By.Name, k.Key, a.now-AppendKeyLife.Microseconds())
	switch {
	case err != nil || !found:
		return false, err
	case request != k.Request:
		return false, outbox.Invalid("Idempotency-Key", "this Idempotency-Key was used for another append, to campaign %q; use a new key for a new append", campaign)
	}
	var runs []seqRun
	if err := json.Unmarshal([]byte(outcome), &runs); err != nil {
		return false, fmt.Errorf("read what an append came to: %w", err)
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

// recordKey queues the record of what a call under a key came to.
func (a *appending) recordKey(call *appendCall) error {
	var runs []seqRun
	for _, one := range call.result {
		if last := len(runs) - 1; last >= 0 && runs[last].Last+1 == one.Seq && runs[last].Existed == one.Existed {
			runs[last].Last++
			continue
		}
		runs = append(runs, seqRun{First: one.Seq, Last: one.Seq, Existed: one.Existed})
	}
	outcome, err := json.Marshal(runs)
	if err != nil {
		return fmt.Errorf("write what an append came to: %w", err)
	}
	k := call.key
	a.queue.Exec(nil, upsertAppendKey, string(k.By.Auth), k.By.Name, k.Key, k.Request, call.events[0].CampaignID, string(outcome), a.now)
	return nil
}
