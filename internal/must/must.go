// Package must ends tests at errors that they do not expect.
//
//	must.OK(t, engine.Close())
//	events := must.Get(store.Load(ctx, "a")).Or(t)
package must

// TB is what every kind of test can do: testing.TB, and rapid.TB.
type TB interface {
	Helper()
	Fatal(...any)
}

// OK ends the test if err is one.
func OK(tb TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatal(err)
	}
}

// Result is what a call returned.
type Result[T any] struct {
	value T
	err   error
}

// Get takes the two results of a call; Or tells the test to end at an error.
func Get[T any](value T, err error) Result[T] { return Result[T]{value, err} }

// Or returns the value, or ends the test.
func (r Result[T]) Or(tb TB) T {
	tb.Helper()
	OK(tb, r.err)
	return r.value
}
