// Package campaign holds campaigns and their rows in the outbox: states, what blocks them and why, errors and
// their causes, projections in a campaign, instances, and the summary of all. Its rules are pure.
package campaign
