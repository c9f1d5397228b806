// Package inbound holds sources, whose rows become events: states, rejected rows, and what is found wrong with
// them.
package inbound
