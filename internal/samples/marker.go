package samples

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// MarkerKind is the kind of a moment marked in charts.
type MarkerKind string

// The kinds of markers.
const (
	MarkerDeploy    MarkerKind = "deploy"    // an instance started with another build
	MarkerVersion   MarkerKind = "version"   // an instance started with another version of a projection
	MarkerPause     MarkerKind = "pause"     // of a campaign, a projection or a publisher
	MarkerResume    MarkerKind = "resume"    // likewise
	MarkerOperation MarkerKind = "operation" // an operation started
	MarkerRun       MarkerKind = "run"       // a run started
	MarkerNamed     MarkerKind = "named"     // by an operator or a script
	MarkerLost      MarkerKind = "lost"      // an instance was seen last that ended without stopping, or is silent
)

// Marker is a moment marked in charts.
type Marker struct {
	At       time.Time           `json:"at"`
	Kind     MarkerKind          `json:"kind"`
	Version  string              `json:"version"`            // of a deploy, a projection or an instance that was lost
	Previous string              `json:"-" redact:"-"`       // the version before that one
	Subject  string              `json:"subject" redact:"-"` // the instance, projection, campaign or publisher
	Text     string              `json:"text"`               // of a named one
	Host     string              `json:"host"`               // of a deploy, a version or an instance that was lost
	Entry    int64               `json:"audit_entry"`        // the entry in the audit log; 0 without one
	Action   operator.Action     `json:"action" api:"empty"` // of the entry
	Actor    string              `json:"actor"`              // of the entry
	Audit    operator.AuditEntry `json:"-" redact:"-"`       // the entry
}

// About reports whether a marker concerns a campaign: it is of that campaign, or of no single one.
func (m Marker) About(campaign string) bool {
	return m.Audit.CampaignID == "" || m.Audit.CampaignID == campaign
}

// MarkedActions are the actions that are marked.
var MarkedActions = map[operator.Action]MarkerKind{
	operator.ActionPause: MarkerPause, operator.ActionProjectionPause: MarkerPause, operator.ActionPublisherPause: MarkerPause, operator.ActionPublisherPauseAll: MarkerPause,
	operator.ActionResume: MarkerResume, operator.ActionProjectionResume: MarkerResume, operator.ActionPublisherResume: MarkerResume, operator.ActionPublisherResumeAll: MarkerResume,
	operator.ActionOperationStart: MarkerOperation, operator.ActionRunStart: MarkerRun, operator.ActionMark: MarkerNamed,
}

// MarkerOf is the marker of an audit entry; false when its action is not marked.
func MarkerOf(a operator.AuditEntry) (m Marker, marked bool) {
	kind, marked := MarkedActions[a.Action]
	var named Named
	if kind == MarkerNamed {
		_ = json.Unmarshal(a.After, &named) // without a text it is told as an action
	}
	return Marker{At: a.At, Kind: kind, Text: named.Text, Subject: cmp.Or(string(a.Target), a.CampaignID), Entry: a.ID, Action: a.Action, Actor: a.Actor, Audit: a}, marked
}

// Deploys returns a marker for each instance that started with another build than the one before
// it: on its host, or of all if that had none.
func Deploys(instances []campaign.InstanceState) []Marker {
	starts := slices.SortedFunc(slices.Values(instances), func(a, b campaign.InstanceState) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	markers := []Marker{}
	onHost, latest := map[string]string{}, ""
	for i, s := range starts {
		if s.StartedAt.IsZero() {
			continue
		}
		before, known := onHost[s.Host]
		if !known {
			before = latest
		}
		if i > 0 && before != "" && before != s.Version {
			markers = append(markers, Marker{At: s.StartedAt, Kind: MarkerDeploy, Version: s.Version, Previous: before, Subject: s.ID, Host: s.Host})
		}
		onHost[s.Host], latest = s.Version, s.Version
	}
	return markers
}

// LostInstances returns a marker for each instance that ended without stopping, or is silent, where it
// was seen last.
func LostInstances(instances []campaign.InstanceState, now time.Time) []Marker {
	markers := []Marker{}
	for _, i := range instances {
		if state := i.State(now); (state == campaign.InstanceCrashed || state == campaign.InstanceSilent) && !i.LastSeen.IsZero() {
			markers = append(markers, Marker{At: i.LastSeen, Kind: MarkerLost, Version: i.Version, Subject: i.ID, Host: i.Host})
		}
	}
	return markers
}

// MarkerGroup is markers too near to each other to be told apart in a chart.
type MarkerGroup struct {
	At      time.Time // of the first
	Markers []Marker  // oldest first
}

// Cluster groups markers in order of time: those within apart of the group's first one are
// together. The groups share the markers' memory.
func Cluster(markers []Marker, apart time.Duration) (groups []MarkerGroup) {
	for from, to := 0, 0; from < len(markers); from = to {
		for to < len(markers) && (to == from || markers[to].At.Sub(markers[from].At) < apart) {
			to++
		}
		groups = append(groups, MarkerGroup{At: markers[from].At, Markers: markers[from:to]})
	}
	return groups
}
