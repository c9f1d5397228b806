package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
)

type runDoc struct {
	ID          int64
	Kind        string
	Status      string
	Verdict     string
	Error       string
	Seq         int64
	Attempts    int64
	Events      struct{ Done, Total int64 }
	Campaigns   struct{ Done, Total int64 }
	Counts      struct{ Matched, Drifted, Replayed, Failed int64 }
	Digests     map[string]string
	Before      map[string]string `json:"digests_before"`
	CancelledBy string            `json:"cancelled_by"`
}

func (r runDoc) active() bool {
	return r.Status == "queued" || r.Status == "running" || r.Status == "cancelling"
}

const rebuildPhrase = "rebuild all campaigns"

// startRun starts a run over HTTP, which must be accepted.
func startRun(t *testing.T, s *server, body map[string]any) (r runDoc) {
	t.Helper()
	body["confirm"] = rebuildPhrase
	s.post(t, http.StatusAccepted, "/api/v1/runs", body).decode(t, &r)
	return r
}

// awaitRunAt waits until a run is as wanted.
func awaitRunAt(t *testing.T, s *server, id int64, what string, wanted func(runDoc) bool) (r runDoc) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("run %d %s", id, what), func() (bool, string) {
		r = runDoc{}
		s.get(t, fmt.Sprintf("/api/v1/runs/%d", id), &r)
		return wanted(r), fmt.Sprintf("%+v", r)
	})
	return r
}

// awaitEnd waits until a run has ended.
func awaitEnd(t *testing.T, s *server, id int64) runDoc {
	t.Helper()
	return awaitRunAt(t, s, id, "ends", func(r runDoc) bool { return !r.active() })
}

// numberedJournal is campaigns × events for the ledger.
func numberedJournal(campaigns, events int) *bytes.Buffer {
	var text bytes.Buffer
	for n := range events {
		for c := range campaigns {
			fmt.Fprintf(&text, `{"campaign_id": "old-%02d", "event_id": "e-%d", "event_type": "load.made", "payload": {"n": %d}}`+"\n", c, n, n)
		}
	}
	return &text
}

// ledgerCampaigns are the campaigns of numberedJournal.
func ledgerCampaigns(campaigns int) (ids []string) {
	for c := range campaigns {
		ids = append(ids, fmt.Sprintf("old-%02d", c))
	}
	return ids
}
