package campaign

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// Overall is the state of the whole.
func (s Summary) Overall(l finding.List) finding.Health {
	h := finding.HealthOf(l, allCurrent(s.Campaigns.Total))
	if s.Campaigns.Total == 0 && len(l.Of(FindsOtherJournal)) == 0 && len(l) > 0 {
		h.Notes = append(h.Notes, allCurrent(0))
	}
	if n := s.Operations.Running; n > 0 {
		h.Notes = append(h.Notes, event.Count(n, "operation is", "operations are")+" running.")
	}
	return h
}

// FaultFindings are the faults of databases.
func (s Summary) FaultFindings() (all finding.List) {
	for _, one := range s.Faults {
		f := Found(FindsFault, one.Database+"-"+string(one.Kind), 1, strings.ToUpper(one.Says[:1])+one.Headline()[1:])
		f.Level, f.Since, f.Guide, f.Short = one.Level, &one.Since, "operating#"+one.Kind.Guide(), one.Kind.Title()
		f.Does = event.Sentence(strings.TrimLeft(one.Says[len(one.Headline()):], ":;. "))
		all = append(all, f)
	}
	return all
}

// JournalFindings are projections that have events the journal lacks.
func (s Summary) JournalFindings() (all finding.List) {
	const lacks = "the projections have events that the journal does not have"
	n := s.Campaigns.Diverged
	switch {
	case s.OtherJournal && s.Events == 0 && n == s.Campaigns.Total:
		return finding.List{Found(FindsOtherJournal, "", n, "The journal is empty, but the projections have events: nothing is applied")}
	case s.OtherJournal && n == 0:
		return finding.List{Found(FindsOtherJournal, "", 0, event.Sentence(lacks)[:len(lacks)])}
	case n > 0:
		return finding.List{Found(FindsDiverged, "", n, event.Count(n, "campaign contradicts", "campaigns contradict")+" the journal: "+lacks+", and nothing is applied there")}
	}
	return nil
}

// WorkerFindings say whether workers are running, and apply.
func (s Summary) WorkerFindings(now time.Time) (all finding.List) {
	f := Found(FindsWorker, "", s.Lag.Events, "No worker is running: nothing is applied")
	if s.Lag.Events == 0 {
		f.Level = finding.Warn
	}
	if s.Mode == ModeShadow {
		all = append(all, Found(FindsShadow, "", 0, "The mode is shadow_only: rows are rehearsed, nothing is applied"))
		f.Says, f.Level = "No worker is running: nothing is rehearsed", finding.Warn
	}
	switch {
	case s.Worker.Starting && !s.Worker.Running:
		f.Says, f.Level = "The worker is starting", finding.Busy
	case s.Mode == ModeInline && !s.Worker.Running:
		if f.Says = "No worker is running: events that failed on append are not retried"; s.Counts.Total() == 0 {
			return nil
		}
	case !s.Worker.Running:
	case s.Mode == ModeShadow:
		return all
	case s.Counts.Pending > 0 && s.Worker.LastSeen != nil && now.Sub(*s.Worker.LastSeen) > SilentAfter && s.DueSince != nil && now.Sub(*s.DueSince) > SilentAfter:
		f.Says, f.Level = "Events are waiting, and no worker has been seen for "+event.Age(now.Sub(*s.Worker.LastSeen)), finding.Bad
	case s.Campaigns.Unserved > 0:
		f.Says = event.Count(s.Campaigns.Unserved, "campaign waits", "campaigns wait") + " that no running instance serves: they serve only campaigns that match " + fmt.Sprint(s.Worker.Campaigns)
		f.Does = "Start an instance that serves them, or fix --campaigns."
	default:
		return nil
	}
	return append(all, f)
}

// NewsFor is how long an instance that fell silent is news; the page of instances shows it for a week.
const NewsFor = time.Hour

// InstanceFindings are the instances in trouble. One that has been silent for an hour is no news: it may have
// been replaced before anyone watched.
func InstanceFindings(list []InstanceState, now time.Time) (all finding.List) {
	for _, i := range list {
		state, quiet := i.State(now), now.Sub(i.LastSeen)
		present := state == InstanceRunning || state == InstanceIdle
		var f finding.Finding
		switch {
		case state == InstanceSilent:
			f = Found(FindsSilent, i.ID, int64(quiet.Seconds()), fmt.Sprintf("Instance %s has been silent for %s", i.ID, event.Age(quiet)))
			if f.Since, f.Lingers = &i.LastSeen, quiet >= NewsFor; f.Lingers {
				f.Level = finding.OK
			}
		case i.Stalled && state == InstanceRunning:
			f = Found(FindsStalled, i.ID, 1, fmt.Sprintf("Instance %s is stalled: it applies nothing", i.ID))
			f.Error = i.Trouble
		case i.Trouble != "" && present:
			f = Found(FindsTroubled, i.ID, 1, "Instance "+i.ID+" is in trouble: "+i.Trouble)
		case i.clockDiffers(now):
			f = Found(FindsClock, i.ID, 1, fmt.Sprintf("The clock of instance %s is %s this server's", i.ID, i.Clock()))
		default:
			continue
		}
		f.Build, f.Page = i.Version, "/instances#"+url.PathEscape("instance-"+i.ID)
		all = append(all, f)
	}
	return all
}

// HeldFindings are the projections that are paused, behind or not loaded.
func (s Summary) HeldFindings() (all finding.List) {
	if s.Held == nil {
		return finding.List{Found(FindsUnreadable, "", 0, "Paused and quarantined projections cannot be read right now")}
	}
	for _, h := range s.Held {
		add := func(kind finding.Kind, n int64, says string) *finding.Finding {
			f := Found(kind, h.Projection, n, "Projection "+h.Projection+" is "+says)
			f.Page = PagePath(nil, "projections", h.Projection)
			all = append(all, f)
			return &all[len(all)-1]
		}
		if h.NotLoaded {
			add(FindsNotLoaded, h.Behind, "not loaded any more: its rows are not updated, and not verified").Does = strings.TrimSpace(h.AdvancedWithout())
		}
		if where := h.PausedWhere(); where != "" {
			add(FindsPaused, h.PausedCampaigns, "paused "+where+s.PauseEnds.Projection(h.Projection))
		}
		if h.Behind > 0 && !h.NotLoaded {
			if f := add(FindsBehind, h.Behind, "behind in "+h.Campaigns(h.Behind)+h.CatchUp()); h.RunID+h.BlockedByRun > 0 {
				f.Level = finding.Busy
			}
		}
	}
	return all
}
