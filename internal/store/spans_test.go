package store_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// What versions applied is read from few of the spans, and is what all of them say: of each event, the last that
// applied it. Versions follow each other, take turns, are rolled back, and apply the last event again once its skip is undone.
func TestAppliedBy_isWhatAllSpansSay(t *testing.T) {
	f := open(t)
	f.MustAppend(storetest.Event("c", "counted"))
	versions := []string{"v1", "v2", "v3"}
	for _, v := range versions {
		f.Exec(`insert into loaded_sets (loaded, projection, version) values ($1, 'seats', $2)`, "set-"+v, v)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		f.Exec(`delete from applied_spans`)
		made, last, version := map[int64]string{}, int64(0), 0
		n := 2 + random.IntN(40)
		for at := range n {
			if random.IntN(4) == 0 {
				version = random.IntN(len(versions))
			}
			first, end := last+1, last+1+random.Int64N(5)
			if last > 0 && random.IntN(6) == 0 {
				first = last
			}
			if at < n-1 {
				f.Exec(`insert into applied_spans (campaign_id, first_seq, last_seq, began_at, ended_at, worker, build, loaded) values ('c', $1, $2, $3, $4, 'w', 'b', $5)`,
					first, end, at*10, at*10+5, "set-"+versions[version])
			} else { // the last one is in the campaign's row
				f.Exec(`update campaigns set applied_span = $1 where campaign_id = 'c'`, strconv.FormatInt(first, 36)+" "+strconv.FormatInt(end-first, 36)+" a 1 w b #set-"+versions[version])
			}
			for seq := first; seq <= end; seq++ {
				made[seq] = versions[version]
			}
			last = max(last, end)
		}
		ranges := must.Get(f.Store.AppliedBy(f.Ctx, "c")).Or(t)["seats"]
		for seq := int64(1); seq <= last; seq++ {
			must.Equal(t, ranges.At(seq).Version, made[seq], "event", seq, "seed", seed)
		}
		checkRanges(t, ranges, last)
	}
}

// checkRanges fails unless the ranges are joined, in order, and without gaps.
func checkRanges(t *testing.T, ranges campaign.BuiltRanges, last int64) {
	next, version := int64(1), ""
	for _, r := range ranges {
		must.Need(t, r.FirstSeq == next && r.Version != version, "ranges %+v", ranges)
		next, version = r.LastSeq+1, r.Version
	}
	must.Equal(t, next, last+1, "the end of the ranges")
}
