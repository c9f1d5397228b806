package store_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// The definition of a projection is kept with the one before it, however old that is.
func TestLoaded_keepsTheDefinitionBefore(t *testing.T) {
	t.Parallel()
	f := open(t)
	later := 9 * 24 * time.Hour
	load := func(version, text string) {
		t.Helper()
		must.OK(t, f.Loaded(f.Ctx, outbox.InstanceState{ID: "one", Host: "h"}, []outbox.Definition{{Projection: "orders", Version: version, File: outbox.RehearsalFile{Name: "orders.sql", Text: text}}}))
		f.Clock.Advance(later)
	}
	text := func(version string) string {
		t.Helper()
		d := must.Get(f.Definition(f.Ctx, "orders", version)).Or(t)
		return d.File.Text
	}
	load("v1", "") // by an outboxweb that kept no texts
	if c, err := f.LastChange(f.Ctx, "orders"); err != nil || c != nil {
		t.Errorf("the first version has the change %+v, %v", c, err)
	}
	load("v1", "a\nb\n")
	must.Equal(t, text("v1"), "a\nb\n", "the text of v1")
	load("v2", "a\nc\nd\n")
	c, err := f.LastChange(f.Ctx, "orders")
	must.Need(t, err == nil && c != nil, "the change is %+v, %v", c, err)
	want := "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n"
	must.Hold(t, c.Diff == want && c.Added == 2 && c.Removed == 1 && c.Previous == "v1" && c.Kept, "the change is %+v, want the diff %q", c, want)
	must.Hold(t, !c.Again, "v2 was loaded before: %+v", c)
	later = time.Hour
	load("v3", "e\n")
	if text("v1") != "" || text("v2") != "a\nc\nd\n" || text("v3") != "e\n" || text("") != "e\n" {
		t.Errorf("kept are %q, %q, %q", text("v1"), text("v2"), text("v3"))
	}
	load("v4", "f\n")
	load("v3", "e\n")
	c, err = f.LastChange(f.Ctx, "orders")
	must.Hold(t, err == nil && c != nil && c.Again && c.Previous == "v4", "going back to v3 is %+v, %v", c, err)
}
