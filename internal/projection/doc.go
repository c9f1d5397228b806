// Package projection loads projections written as SQL files and applies events
// to them.
//
// A projection is one file: its tables, and the changes that each event type
// makes to them. It needs no Go and no new build of the program.
//
//	-- projection: roster
//	-- tables: roster_campaigns
//	-- on-failure: block            -- or: quarantine
//	-- max-attempts: 3
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
// owns, on-failure says what happens when the last attempt at an event fails.
// With block, the default, the row is dead and its campaign waits; with
// quarantine the projection is quarantined for that campaign and the others go
// on. max-attempts, from 1 to 1000, is the number of failed attempts at an event
// when this projection is the one that fails; the default is the process's.
//
// Sections follow, each a line and the statements below it. Headers and
// sections begin at the start of their line.
//
//   - schema creates the tables, and indexes and triggers on them. Every table
//     has a column campaign_id, so that one campaign can be cleared and rebuilt
//     alone. Triggers change the projection's own tables only; on PostgreSQL
//     they run functions that the same file creates in sql or plpgsql.
//   - on: lists event types. The statements run in order for each event of
//     these types. A type is written in full, or is * for all, or prefix.* for
//     types that begin with "prefix.". One with a comma, a colon, an @, a quote
//     or two hyphens is in double quotes, and a quote within it is doubled.
//     Several sections may name one type; each runs once, in the order of the
//     file.
//   - digest: is the select whose rows the projection's digest covers;
//     :campaign_id is the only binding there. Several digests have a name each:
//     -- digest NAME: select …. Columns that hold JSON text are named in
//     -- digest NAME (json: COLUMN, …): select …. Without a digest section
//     the digest covers every column of every table. Rows are digested in the
//     order of the select, so text needs collate "C", which is byte order on
//     both databases, and a column with NULLs needs nulls first; without an
//     order by they are sorted by their canonical form.
//
// A section may end its line with @sqlite or @postgres and is then left out on
// the other database. Handlers insert, update and delete rows of the
// projection's own tables, and of the event's campaign only: each statement
// uses :campaign_id.
//
// Comments are SQL comments. One that begins at the start of a line with a
// lower-case word and a colon is parsed as a header or section, and refused if
// the name is unknown; note:, see:, example:, why: and warning: are exempt.
//
// # Bindings
//
// A name with a colon binds a value of the event:
//
//   - :campaign_id, :seq, :position, :event_id, :event_type, :actor_type,
//     :actor_id, :entity_type, :entity_id, :session_id, :request_id,
//     :correlation_id, :causation_id, :event_hash: the envelope. Absent text is
//     empty, not NULL.
//   - :occurred_at, :recorded_at: microseconds since 1970, an integer.
//     :occurred_at_text, :recorded_at_text: the same as RFC 3339 in UTC, without
//     trailing zeros.
//   - :payload, :metadata, :tags: the whole document as JSON text.
//   - :payload.a.b, and likewise for the others: one value. A part that is not
//     letters, digits and _ is quoted, as in :payload."half-life"; a number is
//     an array index. Missing values and null are NULL; strings are text;
//     whole numbers of 64 bits, also those written as 2.0 or 1e3, are integers;
//     longer ones written as digits are text; other numbers are floats, or
//     decimal text if no float has their digits, on SQLite only where they go
//     into a column of text or a cast to text; one out of a float's range fails
//     the event; true and false are 1 and 0; objects and arrays are their JSON
//     text.
//
// With a trailing ! (:payload.name!) a value is required: an event without it
// fails, and the error names the value.
//
// # What rebuilds rely on
//
// The rows of a campaign are a function of its events, in their order, and of
// nothing else. A verify replays the events into other tables and compares; a
// rebuild replaces the live rows by those of such a replay. Handlers must
// therefore not use random values, the current time (an event has its own,
// :occurred_at and :recorded_at), or rows of other campaigns. A rebuild lets the
// database generate its numbers again; that is sound only if the file's digest
// leaves them out.
//
// Tables are created if missing, and never altered. A table of another shape
// needs another name; it is empty until a rebuild fills it. Handlers may change
// without that: rows built by the previous version stay until a rebuild.
//
// # PostgreSQL
//
// One file serves both databases, and a campaign's digests are the same on both,
// if it uses only SQL that means the same on both. PostgreSQL is stricter:
//
//   - A binding has the type of its place: that of the column it is written to
//     or compared with, of the other operand, of the argument. Its value is sent
//     as text and parsed as that type, so a number fits a column of text, "42" a
//     bigint, and 1 and 0 a boolean. A value that cannot be parsed as the type,
//     such as "one", 1.5 or more than 64 bits for a bigint, fails the event,
//     where SQLite stores it unchanged.
//   - Beside an integer literal, a binding is a 4-byte integer, for which
//     :occurred_at / 1000 and coalesce(:payload.n, 0) are soon too large. Write
//     cast(:occurred_at as bigint) / 1000, coalesce(cast(:payload.n as bigint),
//     0).
//   - A binding has one type in the whole statement. Where it would have two,
//     as in values (:seq, 'e' || :seq), or none, as in :payload.x is null, cast
//     it: 'e' || cast(:seq as bigint), cast(:payload.x as text) is null.
//   - Columns are text, bigint, double precision or boolean; integer and real
//     have 4 bytes there. JSON is text, a time is a bigint or text. Fractions
//     belong in double precision, since as text the two databases write them
//     with different digits.
//   - In on conflict … do update, a column of the existing row is qualified with
//     its table: set n = counts.n + 1.
//   - upper and lower follow the language of the database, and on SQLite only
//     change A to Z; upper(:payload.role collate "C") is the same on both.
//   - ifnull, iif, max of two values, insert or replace and others exist only on
//     SQLite. Mostly there is a portable form: coalesce, case, on conflict; the
//     rest belongs in sections for one database.
//
// [Check] reports what SQLite does not accept. What PostgreSQL does not accept
// is reported when a process starts on it, with file and line, before the first
// event.
package projection
