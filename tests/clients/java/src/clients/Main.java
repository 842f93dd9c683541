package clients;

/** The Java client against a broker; see ../../../README.md. Takes its settings from the environment. */
public final class Main {
    public static void main(String[] args) throws Exception {
        Suite suite = new Suite();
        Acknowledge.register(suite);
        Broadcast.register(suite);
        Credentials.register(suite);
        Messages.register(suite);
        Placing.register(suite);
        Redelivery.register(suite);
        Schemas.register(suite);
        Subscriptions.register(suite);
        Topics.register(suite);
        Transactions.register(suite);
        // Not a normal return: a hung test may hold threads of the client.
        System.exit(suite.run() ? 0 : 1);
    }
}
