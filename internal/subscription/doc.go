// Package subscription holds publishers in a topic: settings, states, rules, and what is found wrong with them.
package subscription
