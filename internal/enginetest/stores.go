package enginetest

import (
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Rooms is a store with its operations and runs, without a worker.
type Rooms struct {
	*storetest.Fixture
	Operations *operations.Operations
	Runs       *runs.Runs
	Infos      []campaign.ProjectionInfo // by the worker of its runs
}

// OpenRooms opens a store on empty databases of its own, with its operations and runs. change adjusts its options.
func OpenRooms(tb testing.TB, change ...func(*store.Options)) *Rooms {
	return RoomsOf(storetest.Open(tb, change...))
}

// OwnRooms is OpenRooms for a test that runs beside others.
func OwnRooms(t *testing.T, change ...func(*store.Options)) *Rooms {
	return RoomsOf(storetest.Own(t, change...))
}

// RoomsOf adds operations and runs to a store that is not in use yet.
func RoomsOf(f *storetest.Fixture) *Rooms {
	return &Rooms{Fixture: f, Operations: operations.New(f.Queue, f.Samples), Runs: runs.New(f.Queue), Infos: LoadedRuns}
}

// Beside is another process on the same databases.
func (f *Rooms) Beside(change ...func(*store.Options)) *Rooms {
	return RoomsOf(f.Fixture.Beside(change...))
}

// LoadedRuns are the projections in runs of Rooms, and VersionsRuns the versions of a worker that has loaded them.
var (
	LoadedRuns   = []campaign.ProjectionInfo{{Name: "roster", Version: "v1"}, {Name: "history", Version: "v2"}}
	VersionsRuns = map[string]string{"roster": "v1", "history": "v2"}
)

// Everything requests a verification of every campaign.
var Everything = replay.RunRequest{Kind: replay.RunVerify, All: true}

// Rebuild requests a rebuild of campaigns.
func Rebuild(campaigns ...string) replay.RunRequest {
	return replay.RunRequest{Kind: replay.RunRebuild, Campaigns: campaigns}
}

// StartRun starts a run with the loaded projections.
func (f *Rooms) StartRun(order replay.RunRequest) replay.Run {
	o := storetest.Ana("looks odd")
	o.Confirm = Operator.Confirm
	return must.Get(f.Runs.Start(f.Ctx, o, order, f.Infos)).Or(f.TB)
}

// ClaimRun claims the run that must exist.
func (f *Rooms) ClaimRun(w outbox.Worker) runs.Lease {
	l, ok, err := f.Runs.Claim(f.Ctx, w, VersionsRuns, storetest.Lease)
	must.Need(f.TB, err == nil && ok, "claim a run: %v, %v", ok, err)
	return l
}

// NoRun fails when there is a run to claim.
func (f *Rooms) NoRun(w outbox.Worker) {
	l, ok, err := f.Runs.Claim(f.Ctx, w, VersionsRuns, storetest.Lease)
	must.Need(f.TB, !ok && err == nil, "claimed %+v, %v, want none", l, err)
}

// MustRun reads a run.
func (f *Rooms) MustRun(id int64) replay.Run { return must.Get(f.Runs.Get(f.Ctx, id)).Or(f.TB) }

// ReportRun reports a run's progress, at two events a second.
func (f *Rooms) ReportRun(l runs.Lease, done int64, results ...replay.RunResult) replay.RunStatus {
	return must.Get(f.Runs.Report(f.Ctx, l, runs.Progress{Results: results, EventsDone: done, EventsPerSecond: 2, Lease: storetest.Lease})).Or(f.TB)
}

// FinishRun ends a run.
func (f *Rooms) FinishRun(l runs.Lease, status replay.RunStatus, why string) replay.Run {
	return must.Get(f.Runs.Finish(f.Ctx, l, status, why)).Or(f.TB)
}

// ActiveRuns are the runs that have not ended.
func (f *Rooms) ActiveRuns() []replay.Run { return must.Get(f.Runs.Active(f.Ctx)).Or(f.TB) }

// StartOperation starts an operation.
func (f *Rooms) StartOperation(order operations.OperationRequest) operations.Operation {
	return must.Get(f.Operations.Start(f.Ctx, storetest.Ana("mended"), order)).Or(f.TB)
}

// StepOperation steps an operation until it does not move any further.
func (f *Rooms) StepOperation(id int64) {
	for must.Get(f.Operations.StepOne(f.Ctx, id)).Or(f.TB) {
	}
}

// Operation reads an operation.
func (f *Rooms) Operation(id int64) operations.OperationDetail {
	return must.Get(f.Operations.Get(f.Ctx, id)).Or(f.TB)
}

// RunHolder is the owner of the campaigns of the made-up run in ClaimedForRun.
var RunHolder = outbox.Worker{ID: campaign.RunOwner(7, "host-1"), Build: "v1"}

// HoldsRun inserts a run and makes a process its owner.
func (f *Rooms) HoldsRun(id int64, process string) runs.Lease {
	override, next := "", ""
	if dbtest.Postgres() {
		override, next = "overriding system value", `; select setval(pg_get_serial_sequence('runs', 'id'), max(id)) from runs`
	}
	f.Exec(fmt.Sprintf(`
insert into runs (id, kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at, lease_owner, lease_epoch)
%s values (%d, 'rebuild', 'running', '[]', 1, '[]', '{}', '', 'ana', 'cli', '', 1, 1, '%s', 1)
on conflict (id) do update set lease_owner = excluded.lease_owner%s`, override, id, process, next))
	return runs.Lease{Run: replay.Run{ID: id}, Owner: process, Epoch: 1}
}

// ClaimedForRun claims campaigns for a run; all of them must be available.
func (f *Rooms) ClaimedForRun(campaigns ...string) []outbox.RunClaim {
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), RunHolder, campaigns, storetest.Lease)
	must.Need(f.TB, err == nil && len(claims) == len(campaigns), "claimed %+v, %v; want %q", claims, err, campaigns)
	return claims
}

// ReleaseFromRun releases the claims of ClaimedForRun.
func (f *Rooms) ReleaseFromRun(claims ...outbox.RunClaim) {
	lost, err := f.ReleaseForRun(f.Ctx, RunHolder, claims)
	must.Need(f.TB, err == nil && len(lost) == 0, "release: lost %q, %v", lost, err)
}
