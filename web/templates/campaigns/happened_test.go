package campaigns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// historyOf is an event's history in short, a step a minute: "f boom" "d boom" and "q boom" are failed attempts,
// deaths and quarantines of it, which "@v2" marks as those of another version and "#b2" as those of another
// build; "requeue ana" is an action in the history, "refused bo" one that is only in the audit log.
func historyOf(steps ...string) (campaign.EventHistory, []operator.AuditEntry) {
	h := campaign.EventHistory{Seq: 3}
	var acts []operator.AuditEntry
	for i, text := range steps {
		words := strings.Fields(text)
		at := time.Date(2026, 11, 21, 7, i, 0, 0, time.UTC)
		s := campaign.EventStep{At: at}
		switch words[0] {
		case "appended":
			s.Kind = campaign.StepAppended
		case "applied":
			s.Kind, s.Span = campaign.StepApplied, &campaign.AppliedSpan{}
		case "replayed":
			s.Kind, s.Replay = campaign.StepReplayed, &campaign.Replayed{Projection: words[1], RunID: 7, Kind: string(replay.RunReplay)}
		case "f", "d", "q":
			s.Kind = map[string]campaign.StepKind{"f": campaign.StepFailed, "d": campaign.StepDied, "q": campaign.StepQuarantined}[words[0]]
			s.Attempt = &campaign.Attempt{At: at, Error: words[1], Projection: "p", ProjectionVersion: "v1", Build: "b1"}
			for _, more := range words[2:] {
				if more[0] == '@' {
					s.Attempt.ProjectionVersion = more[1:]
				} else {
					s.Attempt.Build = more[1:]
				}
			}
		default:
			entry := operator.AuditEntry{ID: int64(i + 1), At: at, Actor: words[1], Action: operator.ActionRequeue, Outcome: operator.AuditDone}
			if words[0] == "refused" {
				entry.Outcome = operator.AuditRefused
			}
			acts = append(acts, entry)
			if words[0] == "refused" {
				continue
			}
			s.Kind, s.AuditEntry = campaign.StepActed, &entry
		}
		h.Steps = append(h.Steps, s)
	}
	return h, acts
}

func TestMoments_partAttemptsByWhatCameBetween(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ steps, want []string }{
		{[]string{"appended"}, []string{"appended"}},
		{[]string{"appended", "f boom", "f boom", "d boom"}, []string{"appended", "Failed 3 times with the same error, now dead"}},
		{[]string{"f boom", "f bang", "f bang"}, []string{"Failed", "Failed 2 times with the same error"}},
		{[]string{"f boom", "d boom", "d boom"}, []string{"Failed 2 times with the same error, now dead", "Failed, now dead"}},
		{[]string{"f boom", "q boom", "applied"}, []string{"Failed 2 times with the same error, projection p quarantined", "Applied without projection p"}},
		{[]string{"applied", "replayed q"}, []string{"Applied without projection q", "replayed q"}},
		{[]string{"f boom", "q boom", "applied", "replayed p", "replayed q"}, []string{"Failed 2 times with the same error, projection p quarantined", "Applied without projections p and q", "replayed p", "replayed q"}},
		{[]string{"f boom", "f boom", "requeue ana", "f boom", "d boom"},
			[]string{"Failed 2 times with the same error", "acted ana", "Failed 2 times with the same error, now dead"}},
		{[]string{"f boom", "refused bo", "f boom"}, []string{"Failed", "refused bo", "Failed"}},
		{[]string{"f boom", "f boom @v2", "f boom @v2"}, []string{"Failed", "Failed 2 times with the same error: Another version of projection p: v1 → v2"}},
		{[]string{"f boom", "f boom #b2"}, []string{"Failed", "Failed: Another build: b1 → b2"}},
		{[]string{"d boom", "requeue ana", "f boom #b2 @v2", "applied"},
			[]string{"Failed, now dead", "acted ana", "Failed: Another build: b1 → b2; another version of projection p: v1 → v2", "Applied"}},
	} {
		var got []string
		for _, m := range moments(historyOf(c.steps...)) {
			words := string(m.Kind)
			switch {
			case m.Kind == campaign.StepApplied:
				words = m.appliedWords(false)
			case m.Replay != nil:
				words += " " + m.Replay.Projection
			case m.Attempt != nil:
				words = m.failedWords()
			case m.AuditEntry != nil && m.AuditEntry.Outcome == operator.AuditRefused:
				words = "refused " + m.AuditEntry.Actor
			case m.AuditEntry != nil:
				words += " " + m.AuditEntry.Actor
			}
			if m.Changed != "" {
				words += ": " + strings.TrimSuffix(m.Changed, ".")
			}
			got = append(got, words)
		}
		must.Equal(t, fmt.Sprint(got), fmt.Sprint(c.want), c.steps, "is")
	}
}

func TestMoments_lastAndHoldEachAttempt(t *testing.T) {
	t.Parallel()
	m := moments(historyOf("f boom", "f boom", "d boom"))[0]
	must.Hold(t, m.At.Sub(m.began()) == 2*time.Minute && len(m.Attempts) == 3 && attemptsWords(m) == "3 attempts, the same error", "from %s to %s: %s", m.began(), m.At, attemptsWords(m))
}

func TestUnrecorded_saysWhenAnEventWasAppliedWithoutRecord(t *testing.T) {
	t.Parallel()
	h, _ := historyOf("appended", "f boom")
	must.Equal(t, unrecorded(h, campaign.Campaign{AppliedSeq: 2}), "", "an event that is not applied")
	must.Hold(t, unrecorded(h, campaign.Campaign{AppliedSeq: 3}) != "", "nothing says that the event is applied")
}

func TestAlikeOf_findsTheNearestEventsOfTheEntity(t *testing.T) {
	t.Parallel()
	lines := []campaign.EventLine{{Seq: 1, EntityType: "seat", EntityID: "7"}, {Seq: 2, EntityType: "seat", EntityID: "7"}, {Seq: 3, EntityType: "room", EntityID: "7"},
		{Seq: 4, EntityType: "seat", EntityID: "7"}, {Seq: 5, EntityType: "seat", EntityID: "8"}, {Seq: 6, EntityType: "seat", EntityID: "7"}, {Seq: 7, EntityType: "seat", EntityID: "7"}}
	must.Equal(t, AlikeOf(event.Event{Seq: 4, EntityType: "seat", EntityID: "7"}, lines, 9), Alike{2, 6, 9})
	must.Equal(t, AlikeOf(event.Event{Seq: 4}, []campaign.EventLine{{Seq: 1}}, 9), Alike{0, 0, 9}, "without an entity")
}

func TestComparedColumns_joinTheValuesWithTheRowThatIsThere(t *testing.T) {
	t.Parallel()
	f := projection.ExplainedFailure{Constraint: &projection.Constraint{Columns: []string{"user_id"}},
		Statement: &projection.FailedStatement{Values: []projection.BoundValue{
			{Name: ":occurred_at!", Value: []byte("1764550800000001"), Columns: []string{"created_at", "updated_at"}, Computed: []string{"updated_at"}},
			{Name: ":payload.user_id", Value: []byte(`"u"`), Columns: []string{"user_id"}, Refused: true},
			{Name: ":payload.x", Missing: true, Columns: nil}}},
		Existing: &projection.ExistingRow{Fields: []projection.Field{{Name: "user_id", Value: []byte(`"u"`)}, {Name: "created_at", Value: []byte("2000000")}, {Name: "updated_at", Value: []byte("2")}, {Name: "name", Value: []byte(`"Imke"`)}}}}
	var got []string
	for _, c := range f.Compared() {
		got = append(got, fmt.Sprintf("%s %s %s %s %t", c.Name, c.Binding, c.Value, c.Existing, c.Refused))
	}
	want := `user_id :payload.user_id "u" "u" true|– :payload.x   true|created_at :occurred_at! "2025-12-01T01:00:00.000001Z" "1970-01-01T00:00:02Z" false|updated_at :occurred_at! "2025-12-01T01:00:00.000001Z" 2 false|name   "Imke" false`
	must.Equal(t, strings.Join(got, "|"), want)
	f.Statement.Lines = []projection.SourceLine{{Number: 1, Text: "  trim(:payload.user_id!),", Failed: true}, {Number: 2, Text: "  :payload.user_id_2", Failed: true}, {Number: 3, Text: "end"}}
	for i, mark := range []string{"✕ 1", "▸ 2", "  3"} {
		_, margin := sourceLook(f, f.Statement.Lines[i])
		must.Equal(t, margin, mark, "the margin")
	}
}
