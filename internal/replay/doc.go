// Package replay holds runs: what they are asked for, how they go, what they come to, and what is found wrong
// with them.
package replay
