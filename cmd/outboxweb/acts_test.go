package main

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/operator"
)

// What is given: a campaign c-1 of four events, and what else an action needs.

func current(s *scene) { s.has("c-1", "taken", "taken", "taken", "taken") }

// dead has a second event that can never be applied.
func dead(s *scene) { s.has("c-1", "taken", "lost", "taken", "taken") }

// failed has a second event that has failed once.
func failed(s *scene) { s.has("c-1", "taken", "full", "taken", "taken") }

// skipped has a last event that was skipped, passed over if a worker has been there since.
func skipped(worked bool) func(*scene) {
	return func(s *scene) {
		s.has("c-1", "taken", "lost")
		s.does(skip)
		if worked {
			s.work()
		}
	}
}

// all is one state after the other.
func all(given ...func(*scene)) func(*scene) {
	return func(s *scene) {
		for _, more := range given {
			more(s)
		}
	}
}

// done is a state in which an action has been done.
func done(given func(*scene), acts ...act) func(*scene) {
	return func(s *scene) {
		given(s)
		for _, a := range acts {
			s.does(a)
		}
	}
}

// many has two campaigns whose second event is dead, and one in which it has failed.
func many(s *scene) {
	dead(s)
	s.has("c-2", "taken", "lost")
	s.has("c-3", "taken", "full")
}

// large has a dead event with more than a thousand behind it.
func large(s *scene) {
	dead(s)
	s.has("c-1", slices.Repeat([]string{"taken"}, 1200)...)
}

// refusing has a publisher that failed at position 3, for which the kind of error has a blame.
func refusing(blame operator.DeliveryErrorKind) func(*scene) {
	return all(delivered, inJournal(`
update publisher_progress set status = 'failed', error_count = 10, error_kind = '%[1]s', last_error = 'status 500', last_error_at = 1, error_position = 3, retry_at = 2,
  stopped = case when '%[1]s' = 'destination' then 1 else 0 end`, blame))
}

var (
	// passed has a skipped event behind which others are applied.
	passed = all(done(dead, skip), (*scene).work)
	// gap has an event that lost its row.
	gap     = all(dead, inJournal(`delete from projection_apply_outbox where seq = 4`), inJournal(`update campaigns set pending = pending - 1`))
	publish = inJournal(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, lease_owner, lease_epoch, lease_expires_at)
values ('sales', 'partner', 'https://partner.example', '{"event_types":["*"]}', 10, 2, 1, 1, 'w-1', 3, 4102444800000000)`)
	// delivered has a publisher at position 2 of 4.
	delivered = all(current, publish)
	// overcome has a publisher that had an error once.
	overcome = all(delivered, inJournal(`update publisher_progress set last_error = 'once', last_error_at = 1`))
	// rejected has a source whose row 12 was rejected.
	rejected = all(current, inJournal(`insert into intake_sources (source, place, waiting, journalled) values ('shop', 'postgres://shop', 3, 7)`), inJournal(`
insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', '12', 'c-1', 'e-1', 'order.paid', '{"payload":{"password":"%s"}}', 2, 'payload is not JSON', 1)`, secret))
	// foreign has a source that belongs to another journal.
	foreign = all(rejected, inJournal(`
update intake_sources set owner = 'another', owned_since = 1772366400000000, error = 'source shop belongs to journal another', error_at = 1772366400000000`))
	interrupted = all(done(current, verify), inJournal(`update runs set status = 'interrupted'`), inJournal(`update run_scopes set active = 0`))
)

// The actions, as they are done.
var (
	requeue     = act{action: operator.ActionRequeue, on: "c-1 2", reason: "the seat is free"}
	retry       = act{action: operator.ActionRetry, on: "c-1 2", reason: "the seat is free"}
	giveUp      = act{action: operator.ActionDeadLetter, on: "c-1 2", reason: "it waits for Monday"}
	skip        = act{action: operator.ActionSkip, on: "c-1 2", reason: "it names no seat", confirm: "skip c-1 2"}
	unskip      = act{action: operator.ActionUnskip, on: "c-1 2", reason: "it fits after all"}
	pause       = act{action: operator.ActionPause, on: "c-1", reason: "the hall is closed"}
	resume      = act{action: operator.ActionResume, on: "c-1", reason: "the hall is open"}
	aReplay     = act{action: operator.ActionReplay, on: "c-1", reason: "a row is missing"}
	repairGaps  = act{action: operator.ActionRepairGaps, args: "--repair", reason: "a row is missing", only: "json command"}
	requeueDead = act{action: operator.ActionRequeueMany, body: `{"campaign_id":"c-1"}`, args: "--dead --campaign=c-1", reason: "seats are free", only: "json command"}
	retryFailed = act{action: operator.ActionRetryMany, args: "--failed", reason: "seats are free", only: "json command"}
	note        = act{action: operator.ActionNoteErrors, form: "fingerprint=known&note=wait", body: `{"fingerprint":"known","note":"wait"}`, args: "known wait", reason: "it is known"}

	start       = act{action: operator.ActionOperationStart, form: "canary=true", body: `{"filter":{},"canary":true}`, args: "--dead --canary", reason: "seats are free"}
	cancel      = act{action: operator.ActionOperationCancel, on: "1", reason: "not yet"}
	acknowledge = act{action: operator.ActionOperationAcknowledge, on: "1", reason: "seen"}

	pauseSeats      = act{action: operator.ActionProjectionPause, on: "seats", reason: "counted by hand"}
	resumeSeats     = act{action: operator.ActionProjectionResume, on: "seats", reason: "counted"}
	pauseSeatsHere  = pauseSeats.with("campaign_id=c-1", `{"campaign_id":"c-1"}`, "seats --campaign=c-1")
	resumeSeatsHere = resumeSeats.with("campaign_id=c-1", `{"campaign_id":"c-1"}`, "seats --campaign=c-1")

	pausePartner     = act{action: operator.ActionPublisherPause, on: "sales partner", reason: "a fire"}
	resumePartner    = act{action: operator.ActionPublisherResume, on: "sales partner", reason: "it is out"}
	pausePartners    = act{action: operator.ActionPublisherPauseAll, on: "partner", args: "--name=partner", reason: "a fire"}
	resumePartners   = act{action: operator.ActionPublisherResumeAll, on: "partner", args: "--name=partner", reason: "it is out"}
	resetPartner     = act{action: operator.ActionPublisherReset, on: "sales partner", reason: "they are back"}
	skipAtPartner    = act{action: operator.ActionPublisherSkip, on: "sales partner", form: "position=3", body: `{"position":3}`, args: "sales/partner 3", reason: "they will not have it"}
	seekBeginning    = act{action: operator.ActionPublisherSeek, on: "sales partner", form: "to=beginning", body: `{"to":"beginning"}`, args: "sales/partner --to beginning", reason: "they lost two"}
	seekHead         = seekBeginning.with("to=head", `{"to":"head"}`, "sales/partner --to head").confirmed("skip 2 events")
	startVerify      = act{action: operator.ActionRunStart, form: "kind=verify&campaign_ids=c-1", body: `{"kind":"verify","campaign_id":"c-1"}`, args: "verify --campaign=c-1", reason: "once a week"}
	verify           = startVerify
	rebuildAll       = act{action: operator.ActionRunStart, form: "kind=rebuild&all_campaigns=true", body: `{"kind":"rebuild","all_campaigns":true}`, args: "rebuild --all", reason: "a new version", confirm: "rebuild all campaigns"}
	cancelRun        = act{action: operator.ActionRunCancel, on: "1", reason: "too slow"}
	resumeRun        = act{action: operator.ActionRunResume, on: "1", reason: "it is night"}
	retryRejection   = act{action: operator.ActionIntakeRetry, on: "shop 1", reason: "the row was corrected"}
	discardRejection = act{action: operator.ActionIntakeDiscard, on: "shop 1", reason: "a test order", confirm: "discard shop 1"}
	testPartner      = act{action: operator.ActionPublisherTest, on: "sales partner", reason: "are they back?"}
	testChat         = act{action: operator.ActionAlertTest, on: "chat", reason: "new"}
	muteDrift        = act{action: operator.ActionAlertMute, on: "drift", form: "for=8h", body: `{"for":"8h"}`, args: "drift --for=8h", reason: "a deploy"}
	unmuteDrift      = act{action: operator.ActionAlertUnmute, on: "drift", reason: "it is over"}
	mark             = act{action: operator.ActionMark, form: "text=deployed", body: `{"text":"deployed"}`, args: "deployed", reason: "shop 1.4"}
	take             = act{action: operator.ActionTake, form: "kind=blocked", body: `{"kind":"blocked"}`, args: "blocked", reason: "the seat is lost"}
	giveBack         = take.with("kind=blocked&give_back=true", `{"kind":"blocked","give_back":true}`, "blocked --give-back").because("home")
	revokeToken      = act{action: operator.ActionTokenRevoke, on: "1", reason: "leaked"}
	handOver         = act{action: operator.ActionIntakeHandOver, on: "shop", reason: "moved here", confirm: "hand over shop"}
)

// scenarios are played in any order, each on each surface.
var scenarios = []scenario{
	{
		name: "a dead row is requeued", given: dead, act: requeue, page: "/campaigns/c-1/events/2",
		then:  []string{"row c-1 2: pending after 0"},
		later: []string{"row c-1 2: dead after 1"}, again: "last action: requeue by",
		says: "Requeued event 2 of campaign c-1", prints: "requeued campaign c-1 seq 2 (lost); 2 rows wait behind it",
		refused: []refusal{
			{requeue.seeing("attempt_count", 7), conflict, "changed since this page was loaded"},
			{requeue.at("c-1 1"), missing, "applied"},
			{requeue.at("c-1 3"), conflict, "pending"},
			{requeue.at("c-1 9"), missing, "c-1"},
			{requeue.at("nobody 2"), missing, "nobody"},
		},
	}, {
		name: "a requeue that releases many rows is confirmed", given: large, act: requeue.confirmed("release 1202 rows"), page: "/rows/c-1/2/requeue",
		then: []string{"row c-1 2: pending after 0"}, again: "last action: requeue by",
		refused: []refusal{{requeue, invalid, "release 1202 rows"}, {requeue.confirmed("release 12 rows"), invalid, "release 1202 rows"}},
	}, {
		name: "dead rows are requeued", given: many, act: requeueDead,
		then:   []string{"row c-1 2: pending after 0"},
		prints: "requeued 1 dead row, 1 of them heads; 2 rows were waiting behind the heads",
		refused: []refusal{
			{requeueDead.with("", `{"status":"dead"}`, "").by("json"), invalid, "unknown field"},
			{requeueDead.with("", "", "--dead c-1 2").by("command"), invalid, "takes no CAMPAIGN SEQ"},
			{requeueDead.with("", `{"limit":10001}`, "--dead --limit=10001"), invalid, "10000"},
		},
	}, {
		name: "a requeue of dead rows that releases many is confirmed", given: large, act: requeueDead.confirmed("requeue 1 rows"),
		then:    []string{"row c-1 2: pending after 0"},
		refused: []refusal{{requeueDead, invalid, "requeue 1 rows"}},
	}, {
		name: "a failed row is retried", given: failed, act: retry, page: "/campaigns/c-1/events/2",
		then:  []string{"row c-1 2: failed after 1"},
		later: []string{"row c-1 2: failed after 2, waits"},
		says:  "Retried event 2 of campaign c-1: due now.", prints: "campaign c-1 seq 2 (full) is due now; 1 attempt has failed",
		refused: []refusal{
			{retry.seeing("status", "dead"), conflict, "changed since this page was loaded"},
			{retry.at("c-1 1"), missing, "applied"},
			{retry.at("c-1 3"), conflict, "only a failed head can be retried"},
			{retry.at("nobody 2"), missing, "nobody"},
		},
	}, {
		name: "failed rows are retried", given: many, act: retryFailed,
		then:   []string{"row c-3 2: failed after 1"},
		later:  []string{"row c-3 2: failed after 2, waits"},
		prints: "1 failed row is due now",
	}, {
		name: "a failing row is given up", given: failed, act: giveUp, page: "/campaigns/c-1/events/2",
		then: []string{"row c-1 2: dead after 1"}, again: "is already dead",
		says: "Dead-lettered event 2 of campaign c-1", prints: "campaign c-1 seq 2 (full) is dead after 1 failed attempt; 2 rows wait behind it",
		refused: []refusal{{giveUp.seeing("attempt_count", 7), conflict, "changed since this page was loaded"}, {giveUp.at("c-1 3"), conflict, "is not the head of its campaign"}},
	}, {
		name: "an event that can never be applied is skipped", given: dead, act: skip, page: "/campaigns/c-1/events/2",
		then:  []string{"row c-1 2: pending after 0", "skip of c-1 2: it names no seat"},
		later: []string{"campaign c-1: applied 4", "row c-1 2: none", "row c-1 3: none", "row c-1 4: none"}, again: "is pending",
		says: "Skipped event 2 of campaign c-1", prints: "skipped campaign c-1 seq 2 (lost); 2 rows wait behind it",
		refused: []refusal{
			{skip.because(""), invalid, "reason"},
			{skip.confirmed(""), invalid, "skip c-1 2"},
			{skip.confirmed("skip it"), invalid, "skip c-1 2"},
			{skip.seeing("attempt_count", 9), conflict, "not 9"},
			{skip.at("c-1 3").confirmed("skip c-1 3"), conflict, "waits behind event 2"},
			{skip.at("nobody 3").confirmed("skip nobody 3"), missing, "nobody"},
		},
	}, {
		name: "a skip is undone before a worker saw it", given: skipped(false), act: unskip, page: "/campaigns/c-1",
		then: []string{"skip of c-1 2: it names no seat, undone: it fits after all"}, again: "is not skipped",
		says:    "Un-skipped event 2",
		refused: []refusal{{unskip.at("c-1 1"), conflict, "is not skipped"}, {giveUp, conflict, "has not failed"}, {unskip.at("nobody 2"), missing, "nobody"}},
	}, {
		name: "the skip of a last event is undone", given: skipped(true), act: unskip, page: "/campaigns/c-1",
		then:  []string{"campaign c-1: applied 1", "row c-1 2: pending after 0", "skip of c-1 2: it names no seat, undone: it fits after all"},
		later: []string{"row c-1 2: dead after 1"}, again: "is not skipped",
		says: "Un-skipped event 2", prints: "un-skipped campaign c-1 seq 2 (lost); it will be applied like any other event",
	},
	{name: "a skip is kept once later events are applied", given: passed, act: unskip, page: "/campaigns/c-1", refused: []refusal{{unskip, conflict, "3"}}},
	{
		name: "a campaign is paused", given: dead, act: pause, page: "/campaigns/c-1",
		then: []string{"campaign c-1: applied 1, paused: the hall is closed"}, again: "is already paused",
		says: "Paused campaign c-1.", prints: "paused campaign c-1: ",
		refused: []refusal{{pause.at("nobody"), missing, "nobody"}},
	}, {
		name: "a campaign is resumed", given: done(dead, pause), act: resume, page: "/campaigns/c-1",
		then: []string{"campaign c-1: applied 1"}, again: "not paused",
		says: "Resumed campaign c-1.", prints: "resumed campaign c-1",
		refused: []refusal{{resume.at("nobody"), missing, "nobody"}},
	}, {
		name: "a campaign is replayed", given: gap, act: aReplay, page: "/campaigns/c-1",
		then: []string{"row c-1 4: pending after 0"},
		says: "Replayed campaign c-1", prints: "replayed campaign c-1: 1 row enqueued, 0 rows of applied events removed",
		refused: []refusal{{aReplay.seeing("head_seq", 7), conflict, "changed since this page was loaded"}, {aReplay.at("nobody"), missing, "nobody"}},
	}, {
		name: "gaps are repaired", given: gap, act: repairGaps,
		then:   []string{"row c-1 4: pending after 0"},
		prints: "repaired 1 campaign: 1 row written, 0 rows of applied events removed, 0 campaigns diverged",
	}, {
		name: "an error is annotated", given: all(dead, inJournal(`update projection_apply_outbox set fingerprint = 'known' where seq = 2`)), act: note,
		then:    []string{"note on known: wait"},
		prints:  "note saved",
		refused: []refusal{{note.with("fingerprint=another&note=wait", `{"fingerprint":"another","note":"wait"}`, "another wait"), missing, "another"}},
	}, {
		name: "an operation is started", given: many, act: start, page: "/operations/new",
		then:  []string{"operation 1: running, 2 chosen, 2 waiting, 0 left"},
		later: []string{"operation 1: stopped, 2 chosen, 0 waiting, 1 left"}, again: "already in a running operation",
		says: "2 rows", prints: "started operation 1: 2 dead rows, 2 of them heads; 2 rows wait behind the heads",
		refused: []refusal{
			{start.with("expected_rows=3", `{"filter":{},"expected_rows":3}`, "").by("form json"), conflict, "2 dead rows are selected now, not 3"},
			{start.with("campaign=nobody", `{"filter":{"campaign_id":"nobody"}}`, "--dead --canary --campaign=nobody"), missing, "nobody"},
			{start.with("campaign=c-3", `{"filter":{"campaign_id":"c-3"}}`, "--dead --canary --campaign=c-3"), conflict, "nothing to requeue"},
			{start.with("limit=0", `{"filter":{"limit":0}}`, "--dead --canary --limit=0"), invalid, "1"},
			{start.with("rows=c-2", `{"rows":[{"campaign_id":"c-2"}]}`, "--canary c-2 2"), invalid, ""},
			{start.with("chosen=true", `{}`, "").by("form json"), invalid, "row"},
		},
	}, {
		name: "an operation of many rows is confirmed", given: large, act: start.confirmed("requeue 1 rows"), page: "/operations/new",
		then: []string{"operation 1: running, 1 chosen, 1 waiting, 0 left"}, again: "already in a running operation",
		refused: []refusal{
			{start, invalid, "requeue 1 rows"},
			{start.confirmed("requeue 2 rows"), invalid, "requeue 1 rows"},
			{start.with("expected_rows=1&expected_released=4", `{"filter":{},"expected_rows":1,"expected_released":4}`, "").by("form json"), conflict, "1,202 rows would be released now, not 4"},
		},
	}, {
		name: "an operation is cancelled", given: done(many, start), act: cancel, page: "/operations/1",
		then:  []string{"operation 1: cancelled, 2 chosen, 0 waiting, 2 left"},
		later: []string{}, again: "cancelled",
		says: "Cancelled operation 1", prints: "cancelled operation 1: 2 rows not attempted, 0 in progress",
		refused: []refusal{{cancel.seeing("status", "done"), conflict, "not done"}, {cancel.at("9"), missing, "there is no operation 9"}, {acknowledge, conflict, "still running"}},
	}, {
		name: "an operation is acknowledged", given: done(many, start, cancel), act: acknowledge, page: "/operations/1",
		then: []string{"operation 1: cancelled, 2 chosen, 0 waiting, 2 left, acknowledged"}, again: "acknowledged by",
		says: "Acknowledged operation 1.", prints: "acknowledged operation 1, which is cancelled",
		refused: []refusal{{acknowledge.seeing("status", "done"), conflict, "not done"}, {acknowledge.at("9"), missing, "there is no operation 9"}},
	}, {
		name: "an operation that is done is not cancelled", given: all(done(many, start), inJournal(`update operations set status = 'done'`)), act: cancel,
		refused: []refusal{{cancel, conflict, "is done already"}},
	}, {
		name: "a projection is paused", given: current, act: pauseSeats, page: "/projections/seats",
		then: []string{"projection seats: paused: counted by hand"}, again: "already paused",
		says: "Paused projection seats", prints: "paused projection seats for all campaigns",
		refused: []refusal{{pauseSeats.at("chairs"), missing, "chairs"}},
	}, {
		name: "a projection is resumed", given: done(current, pauseSeats), act: resumeSeats, page: "/projections/seats",
		refused: []refusal{{resumeSeatsHere, conflict, "resume it for all"}},
		then:    []string{"projection seats: live"}, again: "not paused",
		says: "Resumed projection seats", prints: "resumed projection seats for all campaigns",
	}, {
		name: "a projection is paused in one campaign", given: current, act: pauseSeatsHere,
		then: []string{"projection seats in c-1: paused at 4: counted by hand"}, again: "already paused",
		says: "Paused projection seats", prints: "paused projection seats for campaign c-1 at event 4",
		refused: []refusal{{pauseSeats.with("campaign_id=nobody", `{"campaign_id":"nobody"}`, "seats --campaign=nobody"), missing, "nobody"}},
	}, {
		name: "a projection is resumed in one campaign", given: done(current, pauseSeatsHere), act: resumeSeatsHere,
		then: []string{"projection seats in c-1: live at 4"}, again: "not paused",
		says: "Resumed projection seats", prints: "resumed projection seats for campaign c-1 at event 4",
	}, {
		name: "a publisher is paused", given: delivered, act: pausePartner, page: "/publishers/sales/partner",
		then: []string{"publisher sales/partner: paused at 2 after 0 errors, held in 3: a fire"}, again: "is already paused",
		says: "Paused publisher sales/partner.", prints: "paused publisher sales/partner: it is paused at position 2 of 4, lag: 2 events",
		refused: []refusal{{resetPartner, conflict, "nothing to reset"}, {resumePartner, conflict, "nothing to resume"}, {skipAtPartner, conflict, "no event is blocking"}, {pausePartner.at("sales nothing"), missing, "there is no publisher sales/nothing"}},
	}, {
		name: "a failed publisher is resumed", given: refusing(operator.EventError), act: resumePartner, page: "/publishers/sales/partner",
		then: []string{"publisher sales/partner: active at 2 after 0 errors, held in 3"}, again: "nothing to resume",
		says: "Resumed publisher sales/partner", prints: "resumed publisher sales/partner: it is active at position 2 of 4",
		refused: []refusal{{resumePartner.at("sales nothing"), missing, "there is no publisher sales/nothing"}},
	}, {
		name: "a publisher is paused in all topics", given: delivered, act: pausePartners,
		then: []string{"publisher sales/partner: paused at 2 after 0 errors, held in 3: a fire"}, again: "last action: pause all by",
		says: "Paused publisher partner", prints: "paused publisher partner in 1 topic; unchanged in 0",
		refused: []refusal{{pausePartners.at("nothing").with("", "", "--name=nothing"), missing, "nothing"}, {pausePartners.with("", "", "--name=partner sales/partner").by("command"), invalid, "name one publisher"}},
	}, {
		name: "a publisher is resumed in all topics", given: done(refusing(operator.DestinationError), pausePartners), act: resumePartners,
		then: []string{"publisher sales/partner: active at 2 after 0 errors, held in 3"}, again: "last action: resume all by",
		says: "Resumed publisher partner", prints: "resumed publisher partner in 1 topic; unchanged in 0",
	}, {
		name: "the errors of a paused publisher are reset", given: done(refusing(operator.DestinationError), pausePartner), act: resetPartner, page: "/publishers/sales/partner",
		then: []string{"publisher sales/partner: paused at 2 after 0 errors, held in 3: a fire"}, again: "nothing to reset",
		says: "Reset publisher sales/partner", prints: "reset publisher sales/partner: it is paused",
		refused: []refusal{{resetPartner.at("sales nothing"), missing, "there is no publisher sales/nothing"}},
	}, {
		name: "an error that a publisher has overcome is reset", given: overcome, act: resetPartner, page: "/publishers/sales/partner",
		then: []string{"publisher sales/partner: active at 2 after 0 errors, held in 3"}, again: "nothing to reset",
		refused: []refusal{{resumePartner, conflict, "nothing to resume"}},
	}, {
		name: "an event that a partner rejects is skipped", given: refusing(operator.EventError), act: skipAtPartner, page: "/publishers/sales/partner",
		then: []string{"publisher sales/partner: active at 3 after 0 errors, free in 4"}, again: "no event is blocking",
		says: "skipped event 3 (taken) of campaign c-1", prints: "publisher sales/partner skips the event at position 3; it is active, lag: 1 event",
		refused: []refusal{
			{skipAtPartner.because(""), invalid, "reason"},
			{skipAtPartner.with("position=4", `{"position":4}`, "sales/partner 4"), conflict, "position 3 is"},
			{skipAtPartner.with("", "", "sales/partner"), invalid, "osition"},
		},
	}, {
		name: "a skip for a destination that is down is confirmed", given: refusing(operator.DestinationError), act: skipAtPartner.confirmed("skip anyway"), page: "/publishers/sales/partner",
		then:    []string{"publisher sales/partner: failed at 3 after 10 errors, status 500, stopped, retries, free in 4"},
		again:   "no event is blocking",
		refused: []refusal{{skipAtPartner, invalid, "skip anyway"}, {skipAtPartner.confirmed("skip 1 events"), invalid, "skip anyway"}},
	}, {
		name: "a publisher repeats events", given: delivered, act: seekBeginning, page: "/publishers/sales/partner/seek?to=beginning",
		then: []string{"publisher sales/partner: active at 0 after 0 errors, free in 4"}, again: "already at position 0",
		says: "Moved publisher sales/partner from position 2 to 0: 2 events repeated", prints: "publisher sales/partner continues after position 0 instead of 2",
		refused: []refusal{
			{seekBeginning.with("", "{}", "sales/partner"), invalid, ""},
			{seekBeginning.with("to=time&time=soon", `{"time":"soon"}`, "sales/partner --time=soon"), invalid, "time"},
			{seekBeginning.with("to=position&position=5", `{"position":5}`, "sales/partner --position=5"), invalid, "beyond the head"},
			{seekBeginning.at("sales nothing").with("to=head", `{"to":"head"}`, "sales/nothing --to head"), missing, "there is no publisher sales/nothing"},
		},
	}, {
		name: "a publisher passes over events with a reason and the phrase", given: delivered, act: seekHead, page: "/publishers/sales/partner/seek?to=head",
		then: []string{"publisher sales/partner: active at 4 after 0 errors, free in 4"}, again: "already at position 4",
		says: "from position 2 to 4: 2 events skipped", prints: "publisher sales/partner continues after position 4 instead of 2",
		refused: []refusal{{seekHead.because(""), invalid, "reason"}, {seekHead.confirmed(""), invalid, "skip 2 events"}, {seekHead.confirmed("skip it"), invalid, "skip 2 events"}},
	}, {
		name: "a publisher passes over as many events as were shown", given: all(large, publish), act: seekHead.confirmed("skip 1202 events"),
		then: []string{"publisher sales/partner: active at 1204 after 0 errors, free in 4"},
		refused: []refusal{
			{seekHead.with("to=head&expected_repeats=0&expected_skips=2&expected_capped=false", `{"to":"head","expected":{"repeats":0,"skips":2,"capped":false}}`, "").by("form json"), conflict, "changed since this page was loaded"},
		},
	}, {
		name: "a run is started", given: current, act: startVerify,
		then: []string{"run 1: verify queued"}, again: "run 1",
		prints: "run 1",
		refused: []refusal{
			{startVerify.with("kind=verify", `{"kind":"verify"}`, "verify"), invalid, "campaign"},
			{startVerify.with("kind=other&campaign_ids=c-1", `{"kind":"other","campaign_id":"c-1"}`, "other --campaign=c-1"), invalid, "other"},
			{startVerify.with("kind=verify&campaign_ids=nobody", `{"kind":"verify","campaign_id":"nobody"}`, "verify --campaign=nobody"), missing, "nobody"},
		},
	}, {
		name: "a rebuild of everything is confirmed", given: current, act: rebuildAll,
		then:    []string{"run 1: rebuild queued"},
		refused: []refusal{{rebuildAll.confirmed(""), invalid, "rebuild all campaigns"}, {rebuildAll.because(""), invalid, "reason"}},
	}, {
		name: "a run is cancelled", given: done(current, startVerify), act: cancelRun, page: "/runs/1",
		then: []string{"run 1: verify cancelled"}, again: "cancelled",
		says: "Cancelled run 1", prints: "run 1",
		refused: []refusal{{cancelRun.at("9"), missing, "there is no run 9"}},
	}, {
		name: "an interrupted run is resumed", given: interrupted, act: resumeRun, page: "/runs/1",
		then: []string{"run 1: verify queued"}, again: "run 1",
		says: "Resumed run 1", prints: "run 1",
		refused: []refusal{{resumeRun.at("9"), missing, "there is no run 9"}},
	}, {
		name: "a rejected row is retried", given: rejected, act: retryRejection, page: "/intake/shop",
		then: []string{"row 12 of source shop: retrying: the row was corrected"}, again: "is retrying, not open",
		prints:  "rejected row 1 of source shop is retried by the server that holds the source",
		refused: []refusal{{retryRejection.at("nothing 1"), missing, "nothing"}, {retryRejection.at("shop 9"), missing, "9"}},
	}, {
		name: "a rejected row is discarded", given: rejected, act: discardRejection, page: "/intake/shop",
		then: []string{"row 12 of source shop: discarding: a test order"}, again: "is discarding, not open",
		prints: "rejected row 1 of source shop is discarded by the server that holds the source; its campaign c-1 continues",
		refused: []refusal{
			{discardRejection.because(""), invalid, "reason"},
			{discardRejection.confirmed(""), invalid, "discard shop 1"},
			{discardRejection.at("shop 9").confirmed("discard shop 9"), missing, "9"},
		},
	}, {
		name: "a source of another journal is handed over", given: foreign, act: handOver, page: "/intake/shop",
		then: []string{"source shop: of this journal"}, again: "is handed over already",
		prints: "source shop is taken from journal another at the next read of the server that has it",
		refused: []refusal{
			{handOver.because(""), invalid, "reason"},
			{handOver.confirmed(""), invalid, "hand over shop"},
			{handOver.at("nothing").confirmed("hand over nothing"), missing, "nothing"},
		},
	}, {
		name: "a publisher is sent a test event", given: delivered, act: testPartner, page: "/publishers/sales/partner",
		then: []string{},
		says: "Sent a test event to publisher sales/partner: delivered in", prints: "delivered event test-",
		refused: []refusal{{testPartner.at("sales nothing"), missing, "there is no publisher sales/nothing"}},
	}, {
		name: "a receiver of alerts is sent a test message", given: current, act: testChat, page: "/alerts",
		then: []string{},
		says: "Sent a test message to receiver chat: taken in", prints: "receiver chat took a test message",
		refused: []refusal{{testChat.at("none"), missing, "no receiver"}},
	}, {
		name: "a rule is muted", given: current, act: muteDrift,
		then: []string{"rule drift: muted: a deploy"},
		says: "Muted rule drift until", prints: "muted drift until",
		refused: []refusal{
			{muteDrift.with("for=2h", `{"for":"2h"}`, "drift --for=2h"), invalid, "for"},
			{muteDrift.at("none").with("for=8h", `{"for":"8h"}`, "none --for=8h"), missing, "no alert rule"},
		},
	}, {
		name: "a rule is unmuted", given: done(current, muteDrift), act: unmuteDrift,
		then: []string{"rule drift: none"}, again: "not muted",
		says: "Unmuted rule drift.", prints: "unmuted drift",
	}, {
		name: "a moment is marked", given: current, act: mark, page: "/charts",
		then: []string{},
		says: "deployed", prints: "marked: deployed",
		refused: []refusal{{mark.with("text=", `{"text":""}`, "").by("form json"), invalid, "text"}},
	}, {
		name: "what is wrong is taken", given: dead, act: take, page: "/",
		then: []string{"finding blocked : taken: the seat is lost"},
		says: "is on it since", prints: "took finding blocked",
		refused: []refusal{
			{take.with("kind=publisher&subject=sales%2Fpartner", `{"kind":"publisher","subject":"sales/partner"}`, "publisher sales/partner"), missing, "nothing that is wrong now is named publisher sales/partner"},
			{giveBack, conflict, "nobody is on blocked"},
		},
	}, {
		name: "what is wrong is given back", given: done(dead, take), act: giveBack,
		then: []string{"finding blocked : none"}, again: "nobody is on blocked",
		says: "Gave back finding blocked.", prints: "gave back finding blocked",
	}, {
		name: "a token is revoked", given: inJournal(`
insert into tokens (hash, role, note, created_at, created_by, expires_at) values ('h', 'operator', 'deploy', 1, 'root', 4102444800000000)`), act: revokeToken, page: "/tokens",
		then: []string{"token 1: revoked"}, again: "was revoked by",
		says: "Revoked token 1, with the role operator", prints: "revoked token 1 (operator)",
		refused: []refusal{{revokeToken.at("9"), missing, "no token 9"}},
	},
	{name: "a source of this journal is not handed over", given: rejected, act: handOver, refused: []refusal{{handOver, conflict, "does not belong to another journal"}}},
}

// playedElsewhere are the actions without a scenario, with the reason.
var playedElsewhere = map[operator.Action]string{
	operator.ActionRehearse:        "it needs changed files",
	operator.ActionReveal:          "the command line hides nothing",
	operator.ActionTokenCreate:     "a command alone does it",
	operator.ActionJournalWentBack: "outboxweb itself does it",
}
