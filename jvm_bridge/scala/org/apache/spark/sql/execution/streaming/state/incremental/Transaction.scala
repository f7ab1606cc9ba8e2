package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.util.{Arrays, TreeMap}

import org.rocksdb.{EnvOptions, Options, SstFileWriter}

/**
 * One task's view of a store: a committed version and, over it, this task's changes. Keys carry their 2-byte column
 * family. One thread at a time; [[abort]] may come from any thread.
 */
final class Transaction private[incremental] (
    state: StoreState,
    val at: VersionId,
    val readOnly: Boolean,
    rows: TreeMap[Array[Byte], Array[Byte]]) {
  private val changes = new TreeMap[Array[Byte], Option[Array[Byte]]](Arrays.compareUnsigned(_: Array[Byte], _: Array[Byte]))
  @volatile private var open = true

  private def check(): Unit =
    if (!open) throw new IllegalStateException(s"the transaction on version ${at.version} has ended")

  /** The value of a key, null when absent; the caller may keep the array. */
  def get(key: Array[Byte]): Array[Byte] = {
    check()
    rows.get(key)
  }

  def contains(key: Array[Byte]): Boolean = get(key) != null

  def multiGet(keys: Array[Array[Byte]]): Array[Array[Byte]] = keys.map(get)

  def put(key: Array[Byte], value: Array[Byte]): Unit = {
    check()
    rows.put(key.clone(), value.clone())
    changes.put(key.clone(), Some(value.clone()))
  }

  def remove(key: Array[Byte]): Unit = {
    check()
    rows.remove(key)
    changes.put(key.clone(), None)
  }

  /** Adds a value to those of a key: puts it where there is none, else old value, delimiter, value. */
  def append(key: Array[Byte], value: Array[Byte], delimiter: Byte): Unit = {
    val old = get(key)
    put(key, if (old == null) value else (old :+ delimiter) ++ value)
  }

  /** Rows with from <= key < until (null: to the end), uncommitted ones included; in key order when ordered. */
  def scan(from: Array[Byte], until: Array[Byte], ordered: Boolean): EntryIterator = {
    check()
    val all = new TreeMap(rows)
    val cut = if (until == null) all.tailMap(from, true) else all.subMap(from, true, until, false)
    val entries = cut.entrySet.iterator
    new EntryIterator {
      private var entry: java.util.Map.Entry[Array[Byte], Array[Byte]] = _
      def advance(): Boolean = {
        check()
        val more = entries.hasNext
        if (more) entry = entries.next()
        more
      }
      def key: Array[Byte] = entry.getKey
      def value: Array[Byte] = entry.getValue
      def close(): Unit = ()
    }
  }

  /** Removes the rows with from <= key < until (null: to the end); the number of rows that were there. */
  def removeRange(from: Array[Byte], until: Array[Byte]): Long = {
    val found = scan(from, until, ordered = false)
    var n = 0L
    while (found.advance()) {
      remove(found.key)
      n += 1
    }
    n
  }

  /** Number of keys, uncommitted changes counted. */
  def keys: Long = rows.size

  /** Keys that this transaction put, or removed, so far: each counted once, by its last change. */
  def puts: Long = changes.values.stream.filter(_.isDefined).count
  def removes: Long = changes.size - puts

  /** Look-ups answered from memory, and by the base. */
  def hits: Long = 0
  def misses: Long = 0

  /** Writes the changes, sorted, and last the reserved record with this value, as an SST; durable on return. */
  def writeDelta(file: File, meta: Array[Byte]): DeltaFile = {
    check()
    val writer = new SstFileWriter(new EnvOptions, new Options)
    writer.open(file.getPath)
    changes.forEach { (key, value) => if (value.isDefined) writer.put(key, value.get) else writer.delete(key) }
    writer.put(Array[Byte](-1, -1, 'm', 'e', 't', 'a'), meta)
    writer.finish()
    writer.close()
    val crc = new java.util.zip.CRC32
    val bytes = java.nio.file.Files.readAllBytes(file.toPath)
    crc.update(bytes)
    DeltaFile(bytes.length, crc.getValue, puts, removes)
  }

  /** Ends the transaction; its changes are now that version, and the next transaction may begin there. */
  def committed(as: VersionId): Unit = {
    check()
    open = false
    state.append(at, as, rows)
  }

  /** Ends the transaction and forgets its changes. Any thread, any number of times; nothing after [[committed]]. */
  def abort(): Unit = open = false
}
