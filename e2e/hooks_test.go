package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func (d databases) config(t *testing.T, text string) []string {
	name := filepath.Join(t.TempDir(), "outboxweb.yaml")
	must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return []string{"--config", name}
}

// resendLimit is how far back a delivery may restart: a batch, twice.
const resendLimit = 200

// mustBeJournal fails the test unless the received events are the journal's in order with nothing
// but re-sent suffixes, and returns how many were repeated.
func mustBeJournal(t *testing.T, name string, got, journal []int64) (resent int) {
	next, high := 0, 0 // indexes in journal: the next expected event, and the first never received
	for _, position := range got {
		if next == len(journal) || journal[next] != position {
			again, found := slices.BinarySearch(journal, position)
			if !found || again > high || high-again > resendLimit {
				t.Errorf("%s: position %d came where %d new ones had come before", name, position, high)
				return resent
			}
			next = again
		}
		if next < high {
			resent++
		}
		next++
		high = max(high, next)
	}
	must.Equal(t, high, len(journal), "the events that came to", name)
	return resent
}

// positionOf is the id of a CloudEvent.
func positionOf(t *testing.T, text []byte) int64 {
	var e struct {
		ID   string `json:"id"`
		Data struct {
			Position int64 `json:"position"`
		} `json:"data"`
	}
	err := json.Unmarshal(text, &e)
	must.Hold(t, err == nil && e.ID == strconv.FormatInt(e.Data.Position, 10) && e.Data.Position != 0, "not an event of a journal: %v: %s", err, text)
	return e.Data.Position
}

// readFiles reads a file and those it was rotated to, in the order of writing.
func readFiles(t *testing.T, name string) (all []int64) {
	rotated, err := filepath.Glob(name + ".*")
	must.Hold(t, err == nil && len(rotated) != 0, "the file was never rotated: %v", err)
	slices.Sort(rotated)
	for _, part := range append(rotated, name) {
		text := must.Get(os.ReadFile(part)).Or(t)
		must.Hold(t, len(text) <= 0 || text[len(text)-1] == '\n', "%s ends in the middle of a line", part)
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			all = append(all, positionOf(t, lines.Bytes()))
		}
	}
	return all
}

// hooks are webhooks that drop, delay, refuse and repeat.
type hooks struct {
	server *httptest.Server
	t      *testing.T

	mu     sync.Mutex
	random *rand.Rand
	held   chan struct{} // no delivery is answered before it is closed; nil unless held
	bad    int
	got    map[string][]int64
}

func newHooks(t *testing.T, seed uint64) *hooks {
	h := &hooks{t: t, random: rand.New(rand.NewPCG(seed, 1)), got: map[string][]int64{}}
	h.server = httptest.NewServer(h)
	t.Cleanup(func() {
		h.server.CloseClientConnections()
		h.server.Close()
	})
	return h
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	mood := h.random.IntN(200)
	if mood < 7 {
		h.bad++
	}
	switch mood {
	case 0, 1: // drop the connection before accepting anything
		panic(http.ErrAbortHandler)
	case 2, 3:
		http.Error(w, "not now", []int{2: http.StatusServiceUnavailable, 3: http.StatusInternalServerError}[mood])
		return
	case 4:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	}
	h.take(r.URL.Path, body)
	if mood == 5 || mood == 6 { // and after it
		panic(http.ErrAbortHandler)
	}
	if held := h.held; held != nil {
		h.mu.Unlock()
		select {
		case <-held:
		case <-r.Context().Done():
		}
		h.mu.Lock()
	}
}

// hold lets the hooks answer no delivery until letGo is called or the test ends.
func (h *hooks) hold(t *testing.T) (letGo func()) {
	held := make(chan struct{})
	set := func(to chan struct{}) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held = to
	}
	set(held)
	letGo = sync.OnceFunc(func() {
		set(nil)
		close(held)
	})
	t.Cleanup(letGo)
	return letGo
}

func (h *hooks) take(path string, body []byte) {
	events := []json.RawMessage{body}
	if path == "/batch" {
		err := json.Unmarshal(body, &events)
		must.Hold(h.t, err == nil, "not a batch: %v", err)
	}
	for _, e := range events {
		h.got[path] = append(h.got[path], positionOf(h.t, e))
	}
}

func (h *hooks) took(path string) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got[path])
}
