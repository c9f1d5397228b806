package sqldb

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestScan_convertsWhatIsStored(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at, maybe, is, names := noon, new(noon), true, []string{"kept"}
	must.OK(t, errors.Join(ScanTime(&at).Scan(nil), ScanTimeOrNil(&maybe).Scan(nil), ScanTruth(&is).Scan(int64(0)), ScanJSON(&names).Scan("")))
	must.Hold(t, at.IsZero() && maybe == nil && !is && len(names) == 1, "without values there are %v, %v, %v, %v", at, maybe, is, names)

	text := must.Get(JSON([]string{"a"}).Value()).Or(t)
	must.OK(t, errors.Join(ScanTime(&at).Scan(Micros(noon)), ScanTimeOrNil(&maybe).Scan(Micros(noon)), ScanTruth(&is).Scan(int64(1)), ScanJSON(&names).Scan(text)))
	must.Hold(t, at.Equal(noon) && maybe.Equal(noon) && is && names[0] == "a", "with values there are %v, %v, %v, %v", at, maybe, is, names)

	must.Hold(t, ScanJSON(&names).Scan("[") != nil && ScanTime(&at).Scan("noon") != nil, "what cannot be converted is no error")
}

func TestWrapf_keepsNoError(t *testing.T) {
	t.Parallel()
	must.OK(t, Wrapf(nil, "read run %d", 7))
	err := Wrapf(ErrKeyTaken, "read run %d", 7)
	must.Hold(t, errors.Is(err, ErrKeyTaken) && err.Error() == "read run 7: duplicate key", "the error is %v", err)
}
