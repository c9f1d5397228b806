package request_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/request"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// everything has a field of each kind.
type everything struct {
	operator.ReasonRequest
	Text   string             `json:"some_text,omitempty" validate:"id"`
	Status event.Status       `json:"status,omitempty" validate:"omitempty,status"`
	Count  int                `json:"count,omitempty" validate:"omitempty,min=2,max=9" name:"times"`
	Seq    *int64             `json:"seq,omitempty" validate:"omitnil,min=0"`
	Dry    bool               `json:"dry,omitempty"`
	Pause  time.Duration      `json:"pause,omitempty"`
	At     *time.Time         `json:"at,omitempty" kong:"-"`
	Names  []string           `json:"names,omitempty" validate:"dive,required,id"`
	Seen   *operator.Expected `json:"seen,omitempty" kong:"-"`
	Filter *campaign.DeadRows `json:"filter,omitempty"`
	Rows   []event.RowKey     `json:"rows,omitempty" kong:"-"` // which only JSON has
	Since  time.Time          `json:"since" validate:"text,maxbytes=100" kong:"-"`
	Until  time.Time          `json:"until" validate:"text,maxbytes=100" kong:"-"`
	Inside string             `json:"-"`
}

func ref[T any](v T) *T { return &v }

func TestFill_readsEachKindOfField(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]everything{
		"":                                         {},
		"some_text=&count=&names=&unknown=1":       {Names: []string{}},
		"reason=why&some_text=a%26b&status=dead":   {ReasonRequest: operator.ReasonRequest{Reason: "why"}, Text: "a&b", Status: event.Dead},
		"count=9&seq=0&dry=true&pause=1m30s":       {Count: 9, Seq: ref(int64(0)), Dry: true, Pause: 90 * time.Second},
		"at=2026-11-21T12:00:00Z":                  {At: &noon},
		"names=a&names=&names=b":                   {Names: []string{"a", "b"}},
		"seen_status=dead&seen_attempt_count=0":    {Seen: &operator.Expected{Status: event.Dead, AttemptCount: ref(0)}},
		"filter_campaign_id=c&rows=c%2F1&Inside=x": {Filter: &campaign.DeadRows{CampaignID: "c"}},
		"since=-2h&until=2026-11-21":               {Since: noon.Add(-2 * time.Hour), Until: noon.Add(12 * time.Hour)},
	} {
		var got everything
		must.OK(t, request.Fill(&got, must.Get(url.ParseQuery(query)).Or(t), noon))
		if got.Names != nil && want.Names == nil {
			got.Names = nil // an empty list is as good
		}
		must.Equal(t, got, want, query)
	}
}

func TestFill_saysWhatAFieldMustBe(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"count=1":                            "count must be 2 or more",
		"count=0":                            "count must be 2 or more", // given, unlike a field that is left out
		"count=10":                           "count must be at most 9",
		"count=two":                          `count must be a whole number, not "two"`,
		"count=3&count=4":                    "count is given more than once",
		"seq=-1":                             "seq must be 0 or more",
		"seq=9223372036854775808":            `seq must be a whole number, not "9223372036854775808"`,
		"dry=yes":                            `dry "yes" is unknown; use true or false`,
		"pause=-2s":                          `pause "-2s" is not a duration; write it like 500ms or 2s`,
		"at=noon":                            `at "noon" is not a time; write it like 2026-11-21T07:30:00Z`,
		"status=lost":                        `status "lost" is unknown; use pending, processing, failed or dead`,
		"some_text=%00":                      "some_text is not valid UTF-8, or contains a NUL character",
		"some_text=%ff":                      "some_text is not valid UTF-8, or contains a NUL character",
		"seen_status=lost":                   `seen.status "lost" is unknown; use pending, processing, failed or dead`,
		"seen_attempt_count=x":               `seen_attempt_count must be a whole number, not "x"`,
		"pause=x&dry=x":                      `dry "x" is unknown; use true or false; pause "x" is not a duration; write it like 500ms or 2s`,
		"reason=" + strings.Repeat("x", 501): "reason is 501 bytes long; the limit is 500",
	} {
		err := request.Fill(new(everything), must.Get(url.ParseQuery(query)).Or(t), noon)
		invalid, is := errors.AsType[*request.Invalid](err)
		must.Need(t, is && errors.Is(err, event.ErrInvalid), "%s: %v", query, err)
		must.Equal(t, invalid.Error(), want, query)
	}
	must.Hold(t, errors.Is(request.Fill(new(everything), url.Values{"since": {"soon"}}, noon), event.ErrInvalid), "a range since soon is taken")
}

// What Values writes is what Fill reads.
func TestValues_areReadAgain(t *testing.T) {
	t.Parallel()
	for want, asked := range map[string]everything{
		"":                               {Count: -1, Inside: "x", Rows: []event.RowKey{{CampaignID: "c", Seq: 1}}},
		"count=3&dry=true&some_text=a+b": {Text: "a b", Count: 3, Dry: true},
		"names=b&names=a&pause=1m30s":    {Names: []string{"b", "a"}, Pause: 90 * time.Second},
		"seq=0&since=2026-11-21&until=2026-11-21T12%3A00%3A00Z": {Seq: ref(int64(0)), Since: noon.Truncate(24 * time.Hour), Until: noon},
	} {
		values := request.Values(asked)
		must.Equal(t, values.Encode(), want)
		var again everything
		must.OK(t, request.Fill(&again, values, noon))
		must.Equal(t, request.Values(again).Encode(), want, "read again")
	}
}

func TestJSON_takesOneObjectOfKnownFields(t *testing.T) {
	t.Parallel()
	var taken everything
	must.OK(t, request.JSON([]byte(` {"some_text":"a","seen":{"status":"dead"}} `), &taken))
	must.Equal(t, taken, everything{Text: "a", Seen: &operator.Expected{Status: event.Dead}})
	for body, want := range map[string]string{
		``:                         "the JSON ends too early",
		`{"some_text":"a"`:         "the JSON ends too early",
		`{"some_text" "a"}`:        `not JSON at byte 14: invalid character '"' after object key`,
		`["a"]`:                    "the body must be a JSON object, not a array",
		`{"count":"3"}`:            "count cannot be a string",
		`{"some_text":"a"} {}`:     "there is data after the JSON object",
		`{"other":1}`:              `unknown field "other"; allowed are reason, some_text, `,
		`{"Some_Text":"a"}`:        `unknown field "Some_Text"; the names of fields are written in small letters`,
		`{"dry":true,"dry":false}`: "dry is given twice",
	} {
		err := request.JSON([]byte(body), new(everything))
		refusal, is := errors.AsType[*event.Refusal](err)
		must.Hold(t, is && errors.Is(err, event.ErrInvalid) && strings.HasPrefix(refusal.Detail, want), "%s: %v, want %s", body, err, want)
	}
}

func TestCommand_isWhatTheRequestHas(t *testing.T) {
	t.Parallel()
	ana, seen := operator.Operator{Name: "ana"}, &operator.Expected{HeadSeq: 3}
	for _, c := range []struct {
		asked any
		want  operator.Command
	}{
		{struct{}{}, operator.Command{By: ana}},
		{operator.ActionRequest{ReasonRequest: operator.ReasonRequest{Reason: "why"}, Expected: seen}, operator.Command{By: ana, Reason: "why", Expected: seen}},
		{inbound.DiscardRequest{Reason: "why", Confirm: "yes"}, operator.Command{By: ana, Reason: "why", Confirm: "yes"}},
		{operations.OperationActionRequest{Expected: &operations.ExpectedOperation{}}, operator.Command{By: ana}}, // of no row
	} {
		must.Equal(t, request.Command(c.asked, ana), c.want)
	}
}

func TestCommandLine_hasTheFlagsThatAreSet(t *testing.T) {
	t.Parallel()
	why := operator.ReasonRequest{Reason: "it's late"}
	for _, c := range []struct {
		asked     any
		arguments []string
		want      string
	}{
		{nil, nil, "do"},
		{everything{}, nil, "do"},
		{nil, []string{"-c 1", "2"}, "do -- '-c 1' 2"},
		{everything{ReasonRequest: why, Text: "-x", Count: 3, Seq: ref(int64(0)), Dry: true, Pause: time.Minute}, nil, `do --reason='it'\''s late' --some-text=-x --times=3 --seq=0 --dry --pause=1m0s`},
		{everything{Names: []string{"a", "b c"}}, []string{""}, "do --names=a --names='b c' -- ''"},
		{everything{Filter: &campaign.DeadRows{CampaignID: "c", Limit: ref(7)}, Dry: true}, nil, "do --dry --campaign=c --limit=7"},
		{everything{At: &noon, Since: noon, Until: noon, Seen: &operator.Expected{HeadSeq: 1}, Rows: []event.RowKey{{Seq: 1}}, Inside: "x"}, nil, "do"},
	} {
		must.Equal(t, request.CommandLine("do", c.asked, c.arguments...), c.want)
	}
}
