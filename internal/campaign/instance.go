package campaign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// InstanceState is one process with a worker, as of its last heartbeat. An instance known only by
// its leftover leases has an ID, a Holding and nothing else.
type InstanceState struct {
	ID      string `json:"id" redact:"-"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Mode    Mode   `json:"mode" api:"empty"`
	// the campaigns whose events it applies: ids, and prefixes of ids followed by *; * alone is
	// every campaign
	Campaigns Scope         `json:"campaigns"`
	StartedAt time.Time     `json:"started_at"`
	LastSeen  time.Time     `json:"last_seen"`  // by the reading process's clock
	StoppedAt *time.Time    `json:"stopped_at"` // nil unless it stopped, or a start on its host found that it had crashed
	BeatEvery time.Duration `json:"-"`          // the heartbeat interval; 0 means only while it works, as on SQLite. JSON has heartbeat_seconds
	Applied   int64         `json:"applied_total"`
	Failed    int64         `json:"failed_total"`
	Fenced    int64         `json:"fenced_total"`
	Rates     Throughput    `json:"throughput"`
	Trouble   string        `json:"trouble"`      // what keeps it from applying events; empty if nothing does
	Stalled   bool          `json:"stalled"`      // it can apply nothing at all
	Spent     Spent         `json:"-" redact:"-"` // in its last busy minutes; empty once it has stopped
	Leases    HeldLeases    `json:"-"`            // empty in a Summary
	Here      bool          `json:"-"`            // it is the reading process itself
	Process   ProcessState  `json:"-"`            // what is known of its process
	// ClockAhead is how far its clock is known to be ahead of the reading process's, negative when
	// behind; 0 when less than a second, or unknown. JSON has clock_ahead_seconds.
	ClockAhead time.Duration `json:"-"`
}

// MarshalJSON writes BeatEvery as heartbeat_seconds, ClockAhead as
// clock_ahead_seconds.
func (i InstanceState) MarshalJSON() ([]byte, error) {
	type fields InstanceState
	return json.Marshal(struct {
		fields
		HeartbeatSeconds  float64 `json:"heartbeat_seconds"`
		ClockAheadSeconds float64 `json:"clock_ahead_seconds"`
	}{fields(i), i.BeatEvery.Seconds(), i.ClockAhead.Seconds()})
}

// HeldLeases are an instance's leases. An expired lease counts until another worker claims the
// campaign or the holder releases it.
type HeldLeases struct {
	Campaigns     int64       `json:"campaigns"`
	Withheld      int64       `json:"withheld"`          // leased campaigns that are paused or diverged, which no worker may claim
	Rows          int64       `json:"rows"`              // rows in processing
	ClaimableFrom *time.Time  `json:"claimable_from"`    // when the first lease expires if the instance sends no further heartbeat; nil without leases
	ClaimableBy   *time.Time  `json:"claimable_by"`      // when the last lease expires
	Held          []HeldLease `json:"held" api:"max=20"` // the leases that expire first, at most 20
	Publishers    []string    `json:"publishers"`        // TOPIC/PUBLISHER of unexpired publisher leases, in order
}

// MaxHeldLeases is how many campaigns a Holding names.
const MaxHeldLeases = 20

// HeldLease is one leased campaign.
type HeldLease struct {
	CampaignID string    `json:"campaign_id" redact:"-"`
	Epoch      int64     `json:"epoch"`    // the lease's fencing number
	HeadSeq    int64     `json:"head_seq"` // 0 without a row, as in inline mode
	Rows       int64     `json:"rows"`     // rows in processing
	ExpiresAt  time.Time `json:"expires_at"`
	Withheld   bool      `json:"withheld"` // it is paused or diverged: no worker may claim it even after that
}

// ProcessState is what is known of an instance's process besides its heartbeats.
type ProcessState int

// What is known of a process.
const (
	ProcessUnknown ProcessState = iota // it is or was on another host, or stopped
	ProcessAlive
	ProcessGone // it ended without stopping
)

// Condition is an instance's state in one word.
type Condition string

// The conditions of an instance.
const (
	InstanceRunning Condition = "running" // sends its promised heartbeats; on SQLite, has work
	InstanceIdle    Condition = "idle"    // promised no heartbeat, and has reported nothing lately: it has no work, or is gone
	InstanceSilent  Condition = "silent"  // missed its heartbeats, or let its leases expire
	InstanceCrashed Condition = "crashed" // ended without stopping, as when it is killed
	InstanceStopped Condition = "stopped"
)

// Recent is how long after its last sign of life an instance without heartbeats counts as running.
const Recent = 15 * time.Second

// MissedBeats is how many heartbeats in a row an instance may miss.
const MissedBeats = 3

// clockDiffers reports whether the instance is present, and its clock differs from the reading process's.
func (i InstanceState) clockDiffers(now time.Time) bool {
	state := i.State(now)
	return i.ClockAhead != 0 && (state == InstanceRunning || state == InstanceIdle)
}

// Clock is how far its clock is off: "10 min ahead of", to be followed by whose.
func (i InstanceState) Clock() string {
	if i.ClockAhead < 0 {
		return event.Age(-i.ClockAhead) + " behind"
	}
	return event.Age(i.ClockAhead) + " ahead of"
}

// State is the instance's condition. Until its clock's offset is known, an instance whose clock is
// behind may look silent.
func (i InstanceState) State(now time.Time) Condition {
	quiet := now.Sub(i.LastSeen)
	switch {
	case i.Process == ProcessGone && (i.StoppedAt != nil || i.BeatEvery == 0):
		return InstanceCrashed
	case i.StoppedAt != nil:
		return InstanceStopped
	case i.LastSeen.IsZero():
		return InstanceSilent
	case i.BeatEvery > 0 && quiet > MissedBeats*i.BeatEvery:
		return InstanceSilent
	case i.BeatEvery > 0 || quiet <= Recent:
		return InstanceRunning
	case i.Leases.Campaigns == 0:
		return InstanceIdle
	case i.Leases.ended(now):
		return InstanceSilent // a running worker renews its leases or releases them
	default:
		return InstanceRunning
	}
}

// Why says in one sentence how the instance is and what happens to its leases.
func (i InstanceState) Why(now time.Time) string {
	state := i.State(now)
	h := i.Leases
	switch {
	case i.Trouble != "" && (state == InstanceRunning || state == InstanceIdle):
		return i.Condition(now) + "; " + i.Trouble
	case h.Campaigns == 0:
		return i.Condition(now) + "; " + cmp.Or(h.publishers(), "nothing") + " leased"
	case state == InstanceRunning && h.ClaimableFrom.After(now):
		return strings.TrimSuffix(i.Condition(now)+"; "+Campaigns(h.Campaigns)+" and "+h.publishers(), " and ") + " leased"
	default:
		return i.Condition(now) + "; " + h.fate(now)
	}
}

func (i InstanceState) Condition(now time.Time) string {
	state := i.State(now)
	switch {
	case state == InstanceCrashed && i.StoppedAt == nil:
		return "crashed or was killed: " + i.seen() + event.Age(now.Sub(i.LastSeen)) + " ago, and its process is gone"
	case state == InstanceCrashed:
		return "crashed or was killed: " + i.seen() + event.Age(now.Sub(i.LastSeen)) + " ago, noticed " + event.Age(now.Sub(*i.StoppedAt)) + " ago"
	case state == InstanceStopped:
		return "stopped " + event.Age(now.Sub(*i.StoppedAt)) + " ago"
	case i.LastSeen.IsZero():
		return "unknown: it left no record"
	case state == InstanceRunning:
		return "running"
	default:
		return i.StateWords(now) + " for " + event.Age(now.Sub(i.LastSeen))
	}
}

// seen says what LastSeen is of: without heartbeats it may have been idle for long before its end.
func (i InstanceState) seen() string {
	if i.BeatEvery == 0 {
		return "last seen at work "
	}
	return "last seen "
}

const notSeen = "not seen"

// StateWords is the state in words. Without heartbeats an idle process of another host looks
// like one that is gone.
func (i InstanceState) StateWords(now time.Time) string {
	state := i.State(now)
	if state == InstanceIdle && !i.Here && i.Process != ProcessAlive {
		return notSeen
	}
	return string(state)
}

func (h HeldLeases) ended(now time.Time) bool { return !h.ClaimableBy.After(now) }

// fate says when others may claim the campaigns of a non-empty Holding if its holder sends no
// further heartbeat.
func (h HeldLeases) fate(now time.Time) string {
	its, becomes, are := "its "+Campaigns(h.Campaigns), "become", "are"
	if h.Campaigns == 1 {
		its, becomes, are = "its campaign", "becomes", "is"
	}
	if h.Withheld == h.Campaigns {
		return fmt.Sprintf("%s %s paused or diverged and cannot be claimed", its, are)
	}
	except := ""
	if h.Withheld > 0 {
		except = fmt.Sprintf(", except %d paused or diverged", h.Withheld)
	}
	last := fmt.Sprintf("in %s (%s)", event.Age(h.ClaimableBy.Sub(now)), h.ClaimableBy.UTC().Format("15:04:05 UTC"))
	switch {
	case h.ended(now) && h.Campaigns == 1:
		return "its lease has expired, any worker may claim its campaign"
	case h.ended(now):
		return fmt.Sprintf("its leases have expired, any worker may claim %s%s", its, except)
	case !h.ClaimableFrom.After(now):
		return fmt.Sprintf("some of %s %s claimable now, the last %s%s", its, are, last, except)
	case h.ClaimableBy.Sub(*h.ClaimableFrom) < time.Second:
		return fmt.Sprintf("%s %s claimable %s%s", its, becomes, last, except)
	default:
		return fmt.Sprintf("%s %s claimable, the first in %s, the last %s%s", its, becomes, event.Age(h.ClaimableFrom.Sub(now)), last, except)
	}
}

func Campaigns(n int64) string { return event.Count(n, "campaign", "campaigns") }

// publishers states how many publishers it has leased; empty if none.
func (h HeldLeases) publishers() string {
	if len(h.Publishers) == 0 {
		return ""
	}
	return event.Count(int64(len(h.Publishers)), "publisher", "publishers")
}

// Add adds a campaign. Campaigns must be added in order of lease expiry.
func (h *HeldLeases) Add(c HeldLease) {
	h.Campaigns++
	h.Rows += c.Rows
	if c.Withheld {
		h.Withheld++
	}
	if h.ClaimableFrom == nil {
		h.ClaimableFrom = &c.ExpiresAt
	}
	h.ClaimableBy = &c.ExpiresAt
	if len(h.Held) < MaxHeldLeases {
		h.Held = append(h.Held, c)
	}
}

// Left reports whether the instance left leased campaigns behind and is unlikely to return.
func (i InstanceState) Left(now time.Time) bool {
	state := i.State(now)
	return i.Leases.Campaigns > 0 && (state == InstanceSilent || state == InstanceCrashed || state == InstanceStopped)
}

// SortInstances orders instances: those that left campaigns behind, then running and idle ones,
// then those that ended; among equals the youngest first.
func SortInstances(all []InstanceState, now time.Time) {
	order := map[Condition]int{InstanceRunning: 0, InstanceIdle: 1, InstanceSilent: 2, InstanceCrashed: 3, InstanceStopped: 3}
	rank := func(i InstanceState) int {
		if i.Left(now) {
			return -1
		}
		return order[i.State(now)]
	}
	slices.SortFunc(all, func(a, b InstanceState) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.ID, b.ID))
	})
}

// InstancesHealth is the state of all instances: the worst finding about them or, without one, how many are in
// which state.
func InstancesHealth(list []InstanceState, l finding.List, now time.Time) finding.Health {
	var parts []string
	for _, state := range []string{string(InstanceRunning), string(InstanceIdle), notSeen, string(InstanceSilent), string(InstanceCrashed)} {
		n := int64(0)
		for _, i := range list {
			if i.StoppedAt == nil && i.StateWords(now) == state {
				n++
			}
		}
		switch {
		case n == 0:
		case len(parts) == 0:
			parts = append(parts, event.Count(n, "instance is", "instances are")+" "+state)
		default:
			parts = append(parts, event.Number(n)+" "+state)
		}
	}
	if len(parts) == 0 {
		parts = []string{"no instance is running"}
	}
	numbers := event.Sentence(strings.Join(parts, ", "))
	h := finding.HealthOfKinds(l, numbers, FindsWorker, FindsShadow, FindsStalled, FindsTroubled, FindsSilent, FindsClock)
	if h.Level != finding.OK {
		h.Notes = append(h.Notes, numbers)
	}
	h.Notes = append(h.Notes, disagreements(list, now)...)
	return h
}

// disagreements says in what running instances differ although they should not, or only briefly.
// Idle ones may have been gone for days.
func disagreements(list []InstanceState, now time.Time) (notes []string) {
	versions, modes := make(map[string]int64), make(map[string]int64)
	for _, i := range list {
		if i.State(now) == InstanceRunning {
			versions[i.Version]++
			modes[string(i.Mode)]++
		}
	}
	if len(versions) > 1 {
		notes = append(notes, "Versions differ, as during a rolling restart: "+tally(versions)+".")
	}
	if len(modes) > 1 {
		notes = append(notes, "Modes differ, and only one should run: "+tally(modes)+".")
	}
	return notes
}

// tally formats counts by name: "v1 (2), v2 (1)".
func tally(numbers map[string]int64) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		words = append(words, fmt.Sprintf("%s (%s)", name, event.Number(numbers[name])))
	}
	return strings.Join(words, ", ")
}
