package corpus

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// The made data stays as it is: testdata has the tables and digests that the rules of the projections, implemented apart from
// their SQL, make of it.
func TestMade_isTheSameAsBefore(t *testing.T) {
	t.Parallel()
	var traces []byte
	for _, trace := range makeTraces(t) {
		traces = append(traces, bytes.Join(trace.Lines, nil)...)
	}
	got := fmt.Sprintf("%x  journal\n%x  traces\n", sha256.Sum256(makeJournal(t).Lines), sha256.Sum256(traces))
	must.Equal(t, got, string(readFile(t, expected(t), "made.sha256")), "the made data has changed, and with it the inputs of many tests")
}
