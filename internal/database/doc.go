// Package database holds what is told of the two databases: faults, connections, sizes, and what reading
// costs.
package database
