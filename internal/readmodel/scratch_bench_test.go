package readmodel_test

import (
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// BenchmarkRebuild replays and swaps waves of campaigns with 500 events each; an operation is
// one event.
func BenchmarkRebuild(b *testing.B) {
	for _, wave := range []int{1, 32} {
		b.Run(fmt.Sprint(wave), func(b *testing.B) {
			f := open(b)
			p := readmodel.Projection{Name: "plain", Version: "v1", Tables: []string{"plain", "plain_events"}, Schema: []string{
				`create table plain (campaign_id text primary key, n bigint not null)`,
				`create table plain_events (campaign_id text not null, seq bigint not null, body text not null, primary key (campaign_id, seq))`}}
			if err := f.Install(f.Ctx, []readmodel.Projection{p}); err != nil {
				b.Fatal(err)
			}
			c, err := f.OpenScratch(f.Ctx, []readmodel.ScratchTables{{Projection: p.Name, Tables: p.Tables, Schema: p.Schema}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			var ids []string
			for i := range wave {
				ids = append(ids, fmt.Sprint("c-", i))
				f.AppendN(ids[i], 1)
			}
			b.ResetTimer()
			for done := 0; done < b.N; {
				claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), enginetest.RunHolder, ids, lease)
				if err != nil {
					b.Fatal(err)
				}
				var plan []readmodel.Swap
				for _, claim := range claims {
					_, err := c.Replay(f.Ctx, 500, func(i int) error {
						if err := c.Exec(f.Ctx, `insert into plain (campaign_id, n) values ($1, 1) on conflict (campaign_id) do update set n = plain.n + 1`, []any{claim.CampaignID}); err != nil {
							return err
						}
						return c.Exec(f.Ctx, `insert into plain_events (campaign_id, seq, body) values ($1, $2, 'what an event says')`, []any{claim.CampaignID, int64(i + 1)})
					})
					if err != nil {
						b.Fatal(err)
					}
					done += 500
					plan = append(plan, readmodel.Swap{CampaignID: claim.CampaignID, Epoch: claim.Epoch, AppliedSeq: claim.Watermark.AppliedSeq,
						Projections: []readmodel.SwapProjection{{Name: "plain", Tables: p.Tables, Seq: claim.Watermark.AppliedSeq, State: outbox.CursorLive}}})
				}
				f.MustSwap(c, plan...)
				if err := c.Clear(f.Ctx, ""); err != nil {
					b.Fatal(err)
				}
				if _, err := f.ReleaseForRun(f.Ctx, enginetest.RunHolder, claims); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
