package suites;

import static net.bytebuddy.matcher.ElementMatchers.isPublic;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.bytecode.assign.Assigner;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.util.NextIterator;
import org.scalatest.tools.Runner;

/**
 * ScalaTest's runner, in a JVM where every provider of Spark's RocksDB class hands its calls on to one of the class
 * that the system property suites.redirect names: for suites that make Spark's class themselves, or name it.
 */
public final class Redirect {
    private static final String REDIRECTED = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider";
    private static final String[] CALLS = {
        "init", "stateStoreId", "close", "getStore", "getReadStore", "upgradeReadStoreToWriteStore", "doMaintenance",
        "supportedCustomMetrics", "supportedInstanceMetrics", "replayStateFromSnapshot", "replayReadStateFromSnapshot",
        "getStateStoreChangeDataReader"
    };
    private static final Map<Object, StateStoreProvider> BEHIND = Collections.synchronizedMap(new WeakHashMap<>());

    private Redirect() {}

    public static void main(String[] arguments) {
        new AgentBuilder.Default()
            .type(named(REDIRECTED))
            .transform((builder, type, loader, module, domain) ->
                builder.visit(Advice.to(Elsewhere.class).on(namedOneOf(CALLS).and(isPublic()))))
            .installOn(ByteBuddyAgent.getInstrumentation());
        System.exit(Runner.run(arguments) ? 0 : 1);
    }

    public static Object call(Object provider, Method method, Object[] arguments) throws Throwable {
        StateStoreProvider behind = BEHIND.computeIfAbsent(provider, made -> make());
        try {
            Method same = behind.getClass().getMethod(method.getName(), method.getParameterTypes());
            Object answer = same.invoke(behind, arguments);
            return answer instanceof NextIterator ? new Feed((NextIterator<?>) answer) : answer;
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static StateStoreProvider make() {
        String name = System.getProperty("suites.redirect");
        EventLog.provider(name);
        try {
            return (StateStoreProvider) Class.forName(name).getConstructor().newInstance();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("suites.redirect names " + name, e);
        }
    }

    public static final class Elsewhere {
        private Elsewhere() {}

        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static Object[] enter(
                @Advice.This Object provider,
                @Advice.Origin Method method,
                @Advice.AllArguments Object[] arguments) throws Throwable {
            return new Object[] {Redirect.call(provider, method, arguments)};
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter Object[] answer,
                @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object returned) {
            returned = answer[0];
        }
    }
}
