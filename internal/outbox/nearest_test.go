package outbox

import (
	"strings"
	"testing"
)

func TestNearestTo_findsWhatAPersonMeant(t *testing.T) {
	t.Parallel()
	known := []string{"order.paid", "order.placed", "order.refunded", "seat.taken", "store-01", "store-07", "Store-11", "ab"}
	for text, want := range map[string]string{
		"order.payed":             "order.paid order.placed",
		"Order.Paid":              "order.paid",
		"order.*":                 "order.paid order.placed order.refunded",
		"paid":                    "order.paid",
		"store-007":               "store-07 store-01",
		"STORE-11":                "Store-11",
		"seat.taken.twice":        "seat.taken",
		"*":                       "",
		"nothing.like.it":         "",
		strings.Repeat("x", 1000): "",
	} {
		if got := strings.Join(NearestTo(text, known), " "); got != want {
			t.Errorf("%q is near %q, want %q", text, got, want)
		}
	}
}
