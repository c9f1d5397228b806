package alerts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestWorker_doesNothingWhileAnotherHasTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := strings.TrimSuffix(hook(w), "}") + `, rules: {dead_rows: {for: 0}}}`
	one := open(t, config)
	two := around(one.Beside(), "w-2", config)
	for _, f := range []*fixture{one, two} {
		f.dead(3)
	}
	for range 28 {
		one.step()
		two.step()
		one.Clock.Advance(15 * time.Second)
	}
	must.Equal(t, w.kinds(), "firing", "sent")
	for range 8 { // the first is gone
		two.Clock.Advance(15 * time.Second)
		two.step()
	}
	two.dead(0)
	two.step()
	if v, err := two.View(two.Ctx); err != nil || v.Evaluator != "w-2" || w.kinds() != "firing resolved" {
		t.Errorf("sent %q, by %+v, %v", w.kinds(), v.Evaluator, err)
	}
}

// childReceiver is the URL to which a process started by a test sends; childJournal and
// childProjections are its databases.
const childReceiver, childJournal, childProjections = "OUTBOXWEB_TEST_RECEIVER", "OUTBOXWEB_TEST_JOURNAL", "OUTBOXWEB_TEST_PROJECTIONS"

// sendAndDie evaluates rules that fire until its parent kills it, which it does when it gets the
// message.
func sendAndDie(url string) int {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(`{receivers: {hook: {url: "`+url+`", allow_private: true}}, to: [hook], rules: {dead_rows: {for: 0}}}`), &document); err != nil {
		panic(err)
	}
	settings, err := alerts.Parse(document.Content[0], os.LookupEnv)
	if err != nil {
		panic(err)
	}
	st, err := store.Open(context.Background(), store.Options{Journal: os.Getenv(childJournal), Projections: os.Getenv(childProjections)})
	if err != nil {
		panic(err)
	}
	facts := outbox.Facts{Summary: outbox.Summary{Counts: outbox.Counts{Dead: 1}}}
	w := alerts.NewWorker(alerts.WorkerConfig{Alerts: alerts.New(st, alerts.Options{Settings: settings}), ID: fmt.Sprint("p-", os.Getpid()),
		Facts: func(context.Context) (outbox.Facts, error) { return facts, nil }, Every: 10 * time.Millisecond})
	w.Run(context.Background())
	return 0
}

func child(t *testing.T, f *storetest.Fixture, url string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childReceiver+"="+url, childJournal+"="+f.Pair.Journal, childProjections+"="+f.Pair.Projections)
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// A process that is killed between sending a message and recording that sends it again, as the same
// one.
func TestWorker_sendsAgainAfterAKill(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	ids, proceed := make(chan string, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m outbox.AlertMessage
		_ = json.NewDecoder(r.Body).Decode(&m)
		ids <- m.ID
		<-proceed
	}))
	defer server.Close()
	first := child(t, f, server.URL)
	sent := <-ids
	_ = first.Process.Kill()
	_, _ = first.Process.Wait()
	close(proceed)
	f.Exec(`update alert_evaluator set lease_expires_at = 0`) // as if a minute had passed
	child(t, f, server.URL)
	must.Equal(t, <-ids, sent, "what is sent after the kill and before it")
	storetest.Eventually(t, "the message is recorded", func() bool { return f.Number(`select count(*) from alert_messages where status = 'sent'`) == 1 })
	must.Equal(t, f.Number(`select count(*) from alert_messages`), 1, "messages")
}

// Two processes on one server send a message once.
func TestPostgresWorkers_sendOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	w := newWorld(t)
	child(t, f, w.URL)
	child(t, f, w.URL)
	storetest.Eventually(t, "a message", func() bool { return w.kinds() != "" })
	storetest.Eventually(t, "an evaluation", func() bool { return f.Number(`select lease_epoch from alert_evaluator where evaluated_at > 0`) > 0 })
	evaluated := f.Number(`select evaluated_at from alert_evaluator`)
	storetest.Eventually(t, "many more", func() bool { return f.Number(`select evaluated_at from alert_evaluator`) > evaluated+200_000 })
	must.Equal(t, w.kinds(), "firing", "sent")
}

func TestMain(m *testing.M) {
	if url := os.Getenv(childReceiver); url != "" {
		os.Exit(sendAndDie(url))
	}
	os.Exit(storetest.Main(m, "^TestPostgres"))
}
