package storetest

import (
	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
)

// MustWatermark reads a campaign's watermark.
func (f *Fixture) MustWatermark(campaign string) readmodel.Watermark {
	f.TB.Helper()
	marks, err := f.Watermarks(f.Ctx, []string{campaign, "nobody"})
	if err != nil {
		f.TB.Fatal(err)
	}
	if _, found := marks["nobody"]; found {
		f.TB.Error("a campaign without a watermark has one")
	}
	return marks[campaign]
}

// SetWatermark brings a campaign's watermark and fence to a known place.
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

// WithProjections installs projections and describes them as loaded.
func (f *Fixture) WithProjections(names ...string) (loaded []outbox.ProjectionInfo) {
	f.TB.Helper()
	for _, name := range names {
		loaded = append(loaded, outbox.ProjectionInfo{Name: name, Version: "v"})
		if err := f.Install(f.Ctx, []readmodel.Projection{{Name: name, Version: "v"}}); err != nil {
			f.TB.Fatal(err)
		}
	}
	return loaded
}
