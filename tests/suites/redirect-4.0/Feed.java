package suites;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.util.NextIterator;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;

/** A change feed of another provider, in the class that Spark's RocksDB provider has to return. It reads no file itself. */
final class Feed extends StateStoreChangeDataReader {
    private final NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> feed;

    @SuppressWarnings("unchecked")
    Feed(NextIterator<?> feed) {
        super(null, new Path("nowhere"), 1, 1, null, Option.empty());
        this.feed = (NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>>) feed;
    }

    @Override
    public String changelogSuffix() {
        return "changelog";
    }

    /** Part of the class in 4.0 alone. */
    public void changelogSuffix_$eq(String suffix) {}

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
