package operator

import (
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Target is the object of an action other than a campaign or row: "run 7", "operation 3",
// "projection NAME", "publisher TOPIC/NAME", "publishers NAME", "token 4", "alert RULE", "receiver NAME", "source NAME", "journal".
type Target string

// The targets of actions.
func JournalTarget() Target { return "journal" } // as a whole

func RunTarget(id int64) Target { return Target("run " + strconv.FormatInt(id, 10)) }

func OperationTarget(id int64) Target { return Target("operation " + strconv.FormatInt(id, 10)) }

func ProjectionTarget(name string) Target { return Target("projection " + name) }

func PublisherTarget(name SubscriptionName) Target { return Target("publisher " + name.String()) }

func PublishersTarget(name string) Target { return Target("publishers " + name) } // in all topics

func TokenTarget(id int64) Target { return Target("token " + strconv.FormatInt(id, 10)) }

func AlertTarget(rule string) Target { return Target("alert " + rule) }

func AlertReceiverTarget(name string) Target { return Target("receiver " + name) }

// IntakeTarget is a source as the object of an action.
func IntakeTarget(source string) Target { return Target("source " + source) }

// SubscriptionName names a subscription: one publisher of one topic.
type SubscriptionName struct {
	Topic     string `json:"topic" redact:"-"`
	Publisher string `json:"publisher" redact:"-"`
}

// String is TOPIC/PUBLISHER, as commands and sentences write a subscription.
func (n SubscriptionName) String() string { return n.Topic + "/" + n.Publisher }

// ParseSubscriptionName parses TOPIC/PUBLISHER.
func ParseSubscriptionName(text string) (SubscriptionName, error) {
	topic, publisher, found := strings.Cut(text, "/")
	if !found {
		return SubscriptionName{}, event.Invalid("pair", "%q is not a publisher; write TOPIC/PUBLISHER, such as scenes/archive", text)
	}
	n := SubscriptionName{Topic: topic, Publisher: publisher}
	if err := event.CheckName("topic", topic); err != nil {
		return n, err
	}
	return n, event.CheckName("publisher", publisher)
}
