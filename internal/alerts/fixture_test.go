package alerts_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// world is a receiver outside: a real HTTP server that notes what it gets.
type world struct {
	*httptest.Server
	mu     sync.Mutex
	got    []alerts.AlertMessage
	heads  []http.Header
	bodies []string
	status int // of its answers; 0 means 200
}

func newWorld(t *testing.T) *world {
	w := &world{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.status != 0 {
			http.Error(rw, "down, password=hunter2hunter2", w.status)
			return
		}
		var m alerts.AlertMessage
		_ = json.Unmarshal(body, &m)
		w.got, w.heads, w.bodies = append(w.got, m), append(w.heads, r.Header), append(w.bodies, string(body))
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *world) answer(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

func (w *world) kinds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kinds []string
	for _, m := range w.got {
		kinds = append(kinds, string(m.Kind))
	}
	return strings.Join(kinds, " ")
}

func parse(tb testing.TB, text string) (alerts.Settings, error) {
	var document yaml.Node
	must.OK(tb, yaml.Unmarshal([]byte(text), &document))
	env := map[string]string{"HOOK": "s3cret-hook", "PASS": "p@ss word", "WHSEC": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq="}
	return alerts.Parse(document.Content[0], func(name string) (string, bool) {
		value, set := env[name]
		return value, set
	})
}

type fixture struct {
	*storetest.Fixture
	*alerts.Alerts
	worker    *alerts.Worker
	facts     facts.Facts
	meanwhile func() // what happens while they are read
}

func around(f *storetest.Fixture, id, config string) *fixture {
	settings := must.Get(parse(f.TB, config)).Or(f.TB)
	x := &fixture{Fixture: f}
	x.Alerts = alerts.New(f.Store, alerts.Options{Settings: settings, Version: "v9", Hide: redact.Builtin().Text,
		Link: func(page, anchor string) string { return "https://ops.example/" + page + "#" + anchor }})
	x.worker = alerts.NewWorker(alerts.WorkerConfig{Alerts: x.Alerts, ID: id, Facts: func(context.Context) (facts.Facts, error) {
		if x.meanwhile != nil {
			x.meanwhile()
		}
		return x.facts.Judged(time.UnixMicro(x.Store.Now())), nil
	}})
	return x
}

func open(t *testing.T, config string) *fixture { return around(storetest.Open(t), "w-1", config) }

// told is a receiver and a worker that tells it, with these rules, in a test that runs beside others.
func told(t *testing.T, rules ...string) (*world, *fixture) {
	t.Parallel()
	w := newWorld(t)
	return w, open(t, hook(w, rules...))
}

// dead sets how many rows are dead, with an error that has a secret.
func (f *fixture) dead(n int64) {
	f.facts = facts.Facts{Moved: true, Summary: campaign.Summary{Counts: campaign.Counts{Dead: n}, Campaigns: campaign.CampaignCounts{Total: 40}},
		Groups: campaign.ErrorGroups{Groups: []campaign.ErrorGroup{{Fingerprint: "refused", Dead: n, Heads: n, Example: "refused: password=hunter2hunter2", Tried: []campaign.Tried{{Build: "v8", Projection: "campaigns", ProjectionVersion: "abc"}}}}}}
	f.facts.Summary.Worker.Running = true
	if n > 0 {
		f.facts.Summary.Campaigns.Blocked = n
	}
}

// pass lets time pass, in steps of the evaluation.
func (f *fixture) pass(d time.Duration) {
	for ; d > 0; d -= 15 * time.Second {
		f.step()
		f.Clock.Advance(15 * time.Second)
	}
	f.step()
}

func (f *fixture) step() {
	must.Get(f.worker.Step(f.Ctx)).Or(f.TB)
}

func hook(w *world, rules ...string) string {
	return `{receivers: {hook: {url: "` + w.URL + `/alerts?key=${HOOK}", secret: "${WHSEC}", allow_private: true}}, to: [hook], rules: {` + strings.Join(rules, ", ") + `}}`
}
