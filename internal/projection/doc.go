// Package projection reads projections written as SQL files and applies events
// to them.
//
// A projection is one file: what it stores, and what each event type does to
// that. It needs no Go and no new build of the program.
//
//	-- projection: roster
//	-- tables: roster_campaigns
//	-- on-failure: block            -- or: quarantine
//
//	-- schema
//	create table roster_campaigns (
//	  campaign_id text primary key,
//	  name text not null,
//	  scenes bigint not null default 0
//	);
//
//	-- on: campaign.created
//	insert into roster_campaigns (campaign_id, name) values (:campaign_id, :payload.name!);
//
//	-- on: scene.*
//	update roster_campaigns set scenes = scenes + 1 where campaign_id = :campaign_id;
//
// # Headers and sections
//
// The headers come first: projection names it, tables lists every table it
// owns, on-failure says what happens when an event has failed for the last
// time. With block, the default, the row is dead and its campaign waits; with
// quarantine the projection is set aside for that campaign and the others go
// on.
//
// Then come sections, each a line and the statements below it. Headers and
// sections begin at the start of their line.
//
//   - schema creates the tables, and indexes and triggers on them. Every table
//     has a column campaign_id, so that one campaign can be cleared and rebuilt
//     alone.
//   - on: lists event types. The statements run in order for each event of
//     these types. A type is written in full, or is * for all, or prefix.* for
//     all that begin with "prefix.". Several sections may name one type; each
//     runs once, in the order of the file.
//   - digest: is the select whose rows the projection's digest covers;
//     :campaign_id is the only binding there. Several digests have a name each:
//     -- digest NAME: select …. Columns that hold JSON text are named in
//     -- digest NAME (json: COLUMN, …): select …. Without a digest section
//     every column of every table counts.
//
// A section may end its line with @sqlite or @postgres and is then left out on
// the other database. Handlers insert, update and delete rows of the
// projection's own tables, and of the event's campaign only: each statement
// uses :campaign_id.
//
// Comments are SQL's. One that begins at the start of a line with a lower-case
// word and a colon is taken for a header or section, and refused when there is
// none of that name; note:, see:, example:, why: and warning: are excepted.
//
// # Bindings
//
// A name with a colon stands for a value of the event:
//
//   - :campaign_id, :seq, :position, :event_id, :event_type, :actor_type,
//     :actor_id, :entity_type, :entity_id, :session_id, :request_id,
//     :correlation_id, :causation_id, :event_hash: the envelope. Absent text is
//     empty, not NULL.
//   - :occurred_at, :recorded_at: microseconds since 1970, an integer.
//     :occurred_at_text, :recorded_at_text: the same as RFC 3339 in UTC, without
//     trailing zeros.
//   - :payload, :metadata, :tags: the whole as JSON text.
//   - :payload.a.b, and likewise for the others: one value. A part that is not
//     letters, digits and _ is quoted, as in :payload."half-life"; a number
//     picks from an array. What is missing or null is NULL; strings are text;
//     integers are integers, or exact decimal text beyond 64 bits; other numbers
//     are floats; true and false are 1 and 0; objects and arrays are their JSON
//     text.
//
// With ! behind it (:payload.name!) a value is required: an event without it
// fails, and the error names it.
package projection
