package main

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
)

// The rows are of the journal. Who asks for them wants to know whether readers see the same.
func TestCampaignsRows_tellsOfOtherLiveRows(t *testing.T) {
	t.Parallel()
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	d.says("campaigns rows c-1", "campaign c-1 as of event 2 of 2, replayed from the journal")
	d.lacks("campaigns rows c-1", "drift")
	db := dbtest.Open(t, d.flags[3])
	must.Get(db.Exec(`delete from log where seq = 2`)).Or(t)
	d.says("campaigns rows c-1", "drift in projection log: 1 live row is not as below; which ones: outboxweb verify --campaign=c-1 --projection log")
	d.append("c-2", 1)
	d.runs("verify --projection log", exitFailed, "1 of 2 campaigns differ from the journal", "fix them with: outboxweb runs start rebuild --campaign=c-1 --projection log")
	must.Get(db.Exec(`delete from log`)).Or(t)
	d.runs("verify", exitFailed, "2 of 2 campaigns differ from the journal", "fix them with: outboxweb runs start rebuild --all")
}
