package suites;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.util.NextIterator;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;

/** A change feed of another provider, in the class that Spark's RocksDB provider has to return. It reads no file itself. */
final class Feed extends StateStoreChangeDataReader {
    private static final StateStoreId NOWHERE = new StateStoreId("nowhere", 0, 0, "default");
    private final NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> feed;

    @SuppressWarnings("unchecked")
    Feed(NextIterator<?> feed) {
        super(NOWHERE, null, new Path("nowhere"), 1, 1, null, StateStoreConf.empty(), Option.empty());
        this.feed = (NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>>) feed;
    }

    @Override
    public String changelogSuffix() {
        return "changelog";
    }

    @Override
    public Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object> getNext() {
        if (feed.hasNext()) {
            return feed.next();
        }
        finished_$eq(true);
        return null;
    }

    @Override
    public void close() {
        feed.closeIfNeeded();
    }
}
