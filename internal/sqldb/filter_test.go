package sqldb

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestFilter_looksAtWhatAQueryDoesNotSelect(t *testing.T) {
	t.Parallel()
	type parcel struct {
		Name   string    `json:"name"`
		SentAt time.Time `json:"sent_at"`
	}
	type parcels struct {
		Name   string    `json:"name" column:"name"`
		Before time.Time `json:"before" column:"sent_at <"`
	}
	by, of := FilterOf[parcels, parcel](nil), parcels{"a", At(9)}
	must.Hold(t, by.Match(parcels{}) == nil && by.Match(of, "name", "before") == nil, "it looks at all")
	must.Hold(t, by.Match(of, "name")(parcel{"b", At(8)}) && !by.Match(of, "name")(parcel{"b", At(9)}), "another time")
	must.Hold(t, by.Match(of)(parcel{"a", At(8)}) && !by.Match(of)(parcel{"b", At(8)}), "another name")
}
