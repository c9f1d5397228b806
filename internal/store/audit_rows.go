package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const insertTarget = `
insert into audit_log_rows (entry_id, campaign_id, first_seq, last_seq, at)
values ($1, $2, $3, $4, $5)`

// RecordTargets records which rows an action on many rows touched, one range per run of
// consecutive rows, so that the action is found from each row. It sorts rows.
func (t *Tx) RecordTargets(act int64, rows []event.RowKey, now int64) error {
	slices.SortFunc(rows, func(a, b event.RowKey) int {
		return cmp.Or(strings.Compare(a.CampaignID, b.CampaignID), cmp.Compare(a.Seq, b.Seq))
	})
	var b sqldb.Batch
	for first := 0; first < len(rows); {
		last := first
		for last+1 < len(rows) && rows[last+1].CampaignID == rows[first].CampaignID && rows[last+1].Seq == rows[last].Seq+1 {
			last++
		}
		b.Exec(nil, insertTarget, act, rows[first].CampaignID, rows[first].Seq, rows[last].Seq, now)
		first = last + 1
	}
	return sqldb.Wrapf(t.RunAll(&b), "note what act %d touched", act)
}

// An action touched a campaign when its record names it or one of its ranges is in it. An
// action on many rows touched only its ranges, even where its record names the requested
// campaign. A reveal touches nothing.
var selectLastAct = `
select action, actor, at
from (
  select action, actor, at
  from (
    select action, actor, at
    from audit_log
    where campaign_id = $1
      and (cast($2 as bigint) = 0 or seq in (0, $2))
      and at >= $3
      and outcome = 'done'
      and action not in (` + actionsThat(operator.ShowsHidden, operator.RequeuesRows, operator.RetriesRows) + `)
    order by id desc
    limit 1
  ) as named
  union all
  select a.action, a.actor, ranged.at
  from (
    select entry_id, at
    from audit_log_rows
    where campaign_id = $1
      and (cast($2 as bigint) = 0 or $2 between first_seq and last_seq)
      and at >= $3
    order by entry_id desc, first_seq desc
    limit 1
  ) as ranged
  join audit_log a on a.id = ranged.entry_id
) as acts
order by at desc
limit 1`

// An action on all campaigns that changes which rows are dead.
var selectLastActOnMany = `
select action, actor, at
from audit_log
where campaign_id = ''
  and outcome = 'done'
  and action in (` + actionsThat(operator.RequeuesRows) + `)
order by id desc
limit 1`

// actionsThat is the SQL list of the actions with one of the effects.
func actionsThat(effects ...operator.Effect) string {
	var quoted []string
	for _, action := range operator.ActionsThat(effects...) {
		quoted = append(quoted, "'"+string(action)+"'")
	}
	return strings.Join(quoted, ", ")
}

const selectLastActOn = `
select action, actor, at
from audit_log
where target in ($1, $2)
  and target <> ''
  and outcome = 'done'
order by id desc
limit 1`

// LastAction says who last did what to a row or, with seq 0, to a campaign or any of its rows,
// for the text of a refusal; empty when there was no action. Without a campaign it is the last
// requeue of many rows.
func (t *Tx) LastAction(campaign string, seq, now int64) string {
	if campaign == "" {
		return t.lastActionBy(now, selectLastActOnMany)
	}
	return t.lastActionBy(now, selectLastAct, campaign, seq, 0)
}

// LastActionSince says who last did what to a row since a time, for a text about the row; empty
// when there was no action.
func (t *Tx) LastActionSince(campaign string, seq int64, since time.Time) string {
	var action, actor string
	var when int64
	if found, err := t.One([]any{&action, &actor, &when}, selectLastAct, campaign, seq, since.UnixMicro()); err != nil || !found {
		return ""
	}
	return fmt.Sprintf("; last action: %s by %s", actionWords(action), actor)
}

// LastActionOn is LastAction for a target that is neither a campaign nor a row, or another one that
// includes it; empty without one.
func (t *Tx) LastActionOn(target, within operator.Target, now int64) string {
	return t.lastActionBy(now, selectLastActOn, string(target), string(within))
}

func (t *Tx) lastActionBy(now int64, query string, args ...any) string {
	var action, actor string
	var when int64
	if found, err := t.One([]any{&action, &actor, &when}, query, args...); err != nil || !found {
		return ""
	}
	return fmt.Sprintf("; last action: %s by %s %s ago", actionWords(action), actor, event.Age(sqldb.At(now).Sub(sqldb.At(when))))
}

func actionWords(action string) string {
	return strings.ReplaceAll(strings.TrimPrefix(action, operator.OnPublisher), "_", " ")
}

// touching selects the actions on a campaign or on one of its events, by record and by touched
// ranges, at most limit each. Its arguments are the parameters of the statement.
func touching(after, campaign, seq, limit string) string {
	return strings.NewReplacer("{after}", after, "{campaign}", campaign, "{seq}", seq, "{limit}", limit).Replace(`join (
  select entry_id
  from (
    select id as entry_id
    from audit_log
    where id {>} {after}
      and campaign_id = {campaign}
      and (cast({seq} as bigint) = 0 or seq = {seq})
    order by id{desc}
    limit {limit}
  ) as named
  union
  select entry_id
  from (
    select distinct entry_id
    from audit_log_rows
    where entry_id {>} {after}
      and campaign_id = {campaign}
      and (cast({seq} as bigint) = 0 or {seq} between first_seq and last_seq)
    order by entry_id{desc}
    limit {limit}
  ) as ranged
) as chosen on chosen.entry_id = id
order by id{desc}
limit {limit}`)
}

var (
	auditOfCampaign    = sqldb.BothWays(selectAudit + touching("$1", "$2", "$3", "$4"))
	countCampaignAudit = sqldb.BothWays(AuditBy.Count("audit_log\n  "+touching(fmt.Sprint(int64(sqldb.FarFuture)), "$2", "$3", "$1"), 3)).Down
)
