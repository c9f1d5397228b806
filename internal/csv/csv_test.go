package csv

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestRow_keepsEveryByteAndQuotesWhatMustBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain": "plain", "two\r\nlines": "\"two\r\nlines\"", "a\rb": "\"a\rb\"", `"`: `""""`, "a,b": `"a,b"`, " a": `" a"`, "a=1": "a=1",
		"=1": "'=1", "\t1": "'\t1", "\r=1": "\"'\r=1\"", "\n+1": "\"'\n+1\"", " \t-1": "' \t-1", "\ufeff@x": "'\ufeff@x", "\u200b=1": "'\u200b=1", "\u2060+1": "'\u2060+1", "\u202e+1": "'\u202e+1", "−1": "−1", `=",`: `"'="","`,
	} {
		must.Equal(t, string(Row(nil, text, int64(-5), -7, false, 0.25, time.Time{})), want+",-5,-7,false,0.25,\r\n", text, "became")
	}
}
