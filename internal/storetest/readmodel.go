package storetest

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// MustWatermark reads a campaign's watermark.
func (f *Fixture) MustWatermark(campaign string) readmodel.Watermark {
	f.TB.Helper()
	marks := must.Get(f.Watermarks(f.Ctx, []string{campaign, "nobody"})).Or(f.TB)
	_, found := marks["nobody"]
	must.Hold(f.TB, !found, "a campaign without a watermark has one")
	return marks[campaign]
}

// SetWatermark sets a campaign's watermark and fence.
func (f *Fixture) SetWatermark(campaign string, seq, epoch int64) {
	f.TB.Helper()
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		w, err := tx.Watermark(campaign)
		if err != nil {
			return err
		}
		return tx.Advance(campaign, epoch, w.AppliedSeq, seq, "hash")
	})
	if err != nil {
		f.TB.Fatal(err)
	}
}

// WithProjections installs projections and returns them as loaded.
func (f *Fixture) WithProjections(names ...string) (loaded []outbox.ProjectionInfo) {
	f.TB.Helper()
	for _, name := range names {
		loaded = append(loaded, outbox.ProjectionInfo{Name: name, Version: "v"})
		must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{{Name: name, Version: "v"}}))
	}
	return loaded
}

// Fails records a failure of a projection at an event.
func (f *Fixture) Fails(projection, campaign string, seq int64, then ...func(*readmodel.ApplyTx, *outbox.Event) error) {
	f.TB.Helper()
	e := must.Get(f.Event(f.Ctx, campaign, seq)).Or(f.TB)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		_, err := tx.Watermark(campaign)
		if err == nil {
			err = tx.Failed(projection, &e, *Failure("boom"))
		}
		for _, further := range then {
			if err == nil {
				err = further(tx, &e)
			}
		}
		return err
	})
	if err != nil {
		f.TB.Fatal(err)
	}
}

// Quarantine quarantines a projection that failed.
func Quarantine(projection string) func(*readmodel.ApplyTx, *outbox.Event) error {
	return func(tx *readmodel.ApplyTx, e *outbox.Event) error { return tx.Quarantine(projection, e) }
}
