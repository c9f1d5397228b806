package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// terminal gives the desk a terminal to read from and types a line there.
func (d *desk) terminal(line string) {
	d.t.Helper()
	keyboard := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)).Or(d.t)
	must.OK(d.t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)).Or(d.t)
	in := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)).Or(d.t)
	d.t.Cleanup(func() { in.Close(); keyboard.Close() })
	must.Get(keyboard.WriteString(line + "\n")).Or(d.t)
	d.in = in
}

// asked wants a text in what was written to the terminal.
func (d *desk) asked(text string) {
	d.t.Helper()
	if !strings.Contains(d.err.String(), text) {
		d.t.Errorf("stderr lacks %q: %s", text, d.err.String())
	}
	d.err.Reset()
}

func TestConfirm_isAskedForAtATerminalAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	events := make([]outbox.Event, 1200)
	for i := range events {
		events[i] = outbox.Event{CampaignID: "c-1", EventType: "a", Payload: json.RawMessage(`{}`)}
	}
	must.Get(d.st.Append(t.Context(), store.Append{Events: events})).Or(t)
	dead := func() {
		t.Helper()
		for _, change := range []string{
			`update projection_apply_outbox set status = 'dead', attempt_count = 8 where campaign_id = 'c-1' and seq = 1`,
			`update campaigns set head_status = 'dead', pending = 1200, dead = 1 where campaign_id = 'c-1'`,
		} {
			must.Get(dbtest.Open(t, d.JournalDB).Exec(change)).Or(t)
		}
	}
	dead()
	one, many := &requeueCmd{Campaign: "c-1", Seq: "1"}, &requeueCmd{Dead: true}
	for want, c := range map[string]*requeueCmd{`--confirm 'release 1200 rows'`: one, `--confirm 'requeue 1 rows'`: many} {
		if err := c.Run(t.Context(), d.app); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("without a terminal: %v, want %s", err, want)
		}
		d.terminal("yes")
		if err := c.Run(t.Context(), d.app); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("with another phrase: %v, want %s", err, want)
		}
		d.in = strings.NewReader("")
		d.asked("releases 1,200")
	}
	d.terminal("release 1200 rows")
	if err := one.Run(t.Context(), d.app); err != nil {
		t.Error(err)
	}
	d.asked("this action releases 1,200 rows; to confirm it, type: release 1200 rows")
	dead()
	many.Confirm = "requeue 1 rows"
	if err := many.Run(t.Context(), d.app); err != nil {
		t.Error(err)
	}
}
