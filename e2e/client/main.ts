// Does to an API what main.go does, through the types that openapi-typescript
// makes of its document.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const [url, campaign, row] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url });
const path = { campaign, seq: Number(row) };

for (let i = 0; i < 2; i++) {
  const { data, error } = await client.POST("/campaigns/{campaign}/events", {
    params: { path: { campaign }, header: { "Idempotency-Key": "client-1" } },
    body: { events: [{ event_type: "made.elsewhere", payload: { n: 1 } }] },
  });
  if (!data || !("events" in data)) throw new Error(`append: ${JSON.stringify(error)}`);
  for (const e of data.events) console.log(`appended ${e.campaign_id} ${e.seq}`);
}

const list = await client.GET("/campaigns", { params: { query: { state: "blocked", limit: 10 } } });
if (!list.data) throw new Error(`list campaigns: ${list.error.detail}`);
for (const c of list.data.items) console.log(`${c.state} ${c.campaign_id} at ${c.head_seq}`);

const read = await client.GET("/rows/{campaign}/{seq}", { params: { path } });
if (!read.data) throw new Error(`read the row: ${read.error.detail}`);
const { seat, user } = read.data.event.payload ?? {};
console.log(`${read.data.row.status} after ${read.data.attempts.length} attempts: map[seat:${seat} user:${user}]`);

const requeued = await client.POST("/rows/{campaign}/{seq}/requeue", {
  params: { path },
  body: { reason: "the client wants it", expected: { status: "dead" } },
});
if (!requeued.data) throw new Error(`requeue: ${requeued.error.detail}`);
console.log(`${requeued.data.status} again, attempts ${requeued.data.attempt_count}`);

const none = await client.GET("/rows/{campaign}/{seq}", { params: { path: { campaign, seq: 1000 } } });
console.log(none.error?.type);
