package publish

import "time"

// SetClock gives a webhook another clock.
func SetClock(p Publisher, now func() time.Time) { p.(*webhook).now = now }
